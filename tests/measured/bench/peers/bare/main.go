// SPDX-License-Identifier: Apache-2.0

// Command bare is the contestant on the bare SDK: see package smallest.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/tests/measured/bench/peers/contestant"
	"github.com/once-lambda/once/tests/measured/bench/smallest"
)

func main() {
	cfg, err := contestant.Config()
	if err != nil {
		log.Fatal(err)
	}
	contestant.Main(bare{dynamodb.NewFromConfig(cfg), os.Getenv("TABLE")})
}

type bare struct {
	client *dynamodb.Client
	table  string
}

func (b bare) Do(ctx context.Context, r contestant.Request) (contestant.Result, error) {
	result, _, err := smallest.Do(ctx, b.client, b.table, r.ID, r.Steps, r, contestant.Handle)
	if errors.Is(err, smallest.ErrInProgress) {
		err = fmt.Errorf("%w: %w", contestant.ErrInProgress, err)
	}
	return result, err
}

// Batch takes the messages at the same time.
func (b bare) Batch(ctx context.Context, batch []contestant.Request) (int, error) {
	var failed atomic.Int64
	var all sync.WaitGroup
	for _, r := range batch {
		all.Go(func() {
			if _, err := b.Do(ctx, r); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(failed.Load()), nil
}
