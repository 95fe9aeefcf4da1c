package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Races: each write is one atomic step.
var raceRequirements = []requirement{
	{
		name: "OneInserterWins",
		rule: fmt.Sprintf("Of %d simultaneous Inserts one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			return oneInserterWins(ctx, s, newKey().RecordID())
		},
	},
	{
		name: "OneInserterReplacesExpired",
		rule: fmt.Sprintf("Of %d simultaneous Inserts over an expired record one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			old.Expires = now().Add(-time.Minute)
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			return oneInserterWins(ctx, s, old.ID)
		},
	},
	{
		name: "OneReplacerWins",
		rule: fmt.Sprintf("Of %d simultaneous Replaces of one version one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := emptyRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			return oneWins(ctx, s, old.ID, func(r driver.Record) (*driver.Record, error) {
				return s.Replace(ctx, r, old.Version)
			})
		},
	},
	{
		name: "OneWriterWins",
		rule: fmt.Sprintf("Of %d simultaneous writers of an expired record, half of them with Insert and half with Replace, one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := emptyRecord()
			old.Expires = now().Add(-time.Minute)
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			var turn atomic.Int32
			return oneWins(ctx, s, old.ID, func(r driver.Record) (*driver.Record, error) {
				if turn.Add(1)%2 == 0 {
					return s.Insert(ctx, r, now())
				}
				return s.Replace(ctx, r, old.Version)
			})
		},
	},
}

func oneInserterWins(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
	at := now()
	return oneWins(ctx, s, id, func(r driver.Record) (*driver.Record, error) {
		return s.Insert(ctx, r, at)
	})
}

// oneWins races writers of different records for one id.
func oneWins(ctx context.Context, s driver.Store, id idempotent.RecordID, write func(driver.Record) (*driver.Record, error)) error {
	var (
		wg   sync.WaitGroup
		met  [racers]*driver.Record
		errs [racers]error
		mine [racers]driver.Record
	)
	start := make(chan struct{})
	for i := range racers {
		mine[i] = emptyRecord()
		mine[i].ID = id
		wg.Go(func() {
			<-start
			met[i], errs[i] = write(mine[i])
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	var winner *driver.Record
	for i := range racers {
		// A store with internal retries may return a writer's own record.
		if met[i] == nil || met[i].Version == mine[i].Version {
			if winner != nil {
				return errors.New("two writers won")
			}
			winner = &mine[i]
		}
	}
	if winner == nil {
		return errors.New("no writer won")
	}
	for i := range racers {
		if met[i] != nil {
			if err := sameRecord("a refused writer got", met[i], *winner); err != nil {
				return err
			}
		}
	}
	return stands(ctx, s, *winner)
}
