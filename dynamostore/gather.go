package dynamostore

import (
	"context"
	"sync"

	"github.com/once-lambda/once/idempotent/driver"
)

// entry is a record in a list, or the id of an unreadable record and the error. An
// invalid record, or one of a later version, must not hide the others.
type entry struct {
	record driver.Record
	err    error
}

func entryOf(it item) entry {
	r, err := decode(it)
	if err != nil {
		return entry{driver.Record{ID: driver.RecordID(keyOf(it))}, err}
	}
	return entry{record: *r}
}

// gather runs n producers, at most atOnce at a time, and yields their results in
// the order in which they are found. An error that a producer returns ends all
// producers and is yielded, like the end of ctx. A producer has to return when
// found returns false.
func gather(ctx context.Context, n, atOnce int, yield func(driver.Record, error) bool, produce func(ctx context.Context, i int, found func(entry) bool) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entries := make(chan entry)
	send := func(e entry) bool {
		select {
		case entries <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	numbers := make(chan int, n)
	for i := range n {
		numbers <- i
	}
	close(numbers)
	var producers sync.WaitGroup
	for range atOnce {
		producers.Go(func() {
			for i := range numbers {
				if ctx.Err() != nil {
					return
				}
				if err := produce(ctx, i, send); err != nil {
					send(entry{err: err})
					return
				}
			}
		})
	}
	go func() {
		producers.Wait()
		close(entries)
	}()

	enough := false
	for e := range entries {
		if enough {
			continue // until every producer has returned
		}
		enough = !yield(e.record, e.err) || e.err != nil && e.record.ID == ""
		if enough {
			cancel()
		}
	}
	if err := ctx.Err(); err != nil && !enough {
		yield(driver.Record{}, err)
	}
}
