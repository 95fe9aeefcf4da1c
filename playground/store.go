// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
)

// tablePatience limits how long the start waits for DynamoDB.
const tablePatience = time.Minute

// openStore opens the store that the environment selects. The returned close
// function is never nil.
func openStore(ctx context.Context, c *config, logger *slog.Logger) (store driver.Store, where string, closeStore func() error, err error) {
	closeStore = func() error { return nil }
	if c.table != "" {
		store, err = openTable(ctx, c)
		return store, "table " + c.table, closeStore, err
	}
	file, err := boltstore.Open(c.storePath())
	if err != nil {
		return nil, "", closeStore, fmt.Errorf("%w. DATA names the directory", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go purge(ctx, file, logger)
	return file, c.storePath(), func() error {
		cancel()
		return file.Close()
	}, nil
}

// openTable opens the table, which has to exist and have the right schema.
func openTable(ctx context.Context, c *config) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, tablePatience)
	defer cancel()
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, fmt.Errorf("ONCE_TABLE is set but no AWS region is; set AWS_REGION, for example to us-east-1")
	}
	store, err := dynamostore.Open(ctx, func(o *dynamostore.Options) { o.Client = dynamostore.NewClient(cfg) })
	if err != nil {
		return nil, err
	}
	if c.createTable {
		err = store.CreateTable(ctx)
	} else {
		err = store.Check(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nONCE_TABLE names the table. If it is missing, ONCE_CREATE_TABLE=1 creates it; if DynamoDB cannot be reached, check AWS_REGION, AWS_ENDPOINT_URL and the credentials", err)
	}
	return store, nil
}

// purge deletes expired records every hour, so that the file does not grow
// without limit.
func purge(ctx context.Context, file *boltstore.Store, logger *slog.Logger) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if _, err := file.Purge(ctx, now); err != nil && ctx.Err() == nil {
				logger.Error("playground: expired records were not deleted", "error", err)
			}
		}
	}
}

// makeData creates the directory for the store's file and the ledger.
func makeData(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for the data: %w; set DATA to another one", err)
	}
	return nil
}
