// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// storeCall is a call of a method of the store.
type storeCall struct {
	Method   driver.Op
	Deadline time.Time // zero: none

	ID     driver.RecordID // of OpGet
	Record *driver.Record  // of OpInsert and OpReplace
	Now    time.Time       // of OpInsert
	Was    driver.Version  // of OpReplace
}

// storeAnswer is what the method returned.
type storeAnswer struct {
	Record *driver.Record
	Error  string
	Kind   int // index in kinds of an error, from 1; 0: another error
}

// kinds are the errors that a store promises to return.
var kinds = []error{1: driver.ErrNoRecord, 2: driver.ErrTooLarge}

// storeService answers the calls of a worker. A call goes on if the worker dies.
type storeService struct{ store driver.Store }

func (s *storeService) answer(c storeCall) (a storeAnswer) {
	ctx := context.Background()
	if !c.Deadline.IsZero() {
		bound, cancel := context.WithDeadline(ctx, c.Deadline)
		defer cancel()
		ctx = bound
	}
	var err error
	switch c.Method {
	case driver.OpInsert:
		a.Record, err = s.store.Insert(ctx, *c.Record, c.Now)
	case driver.OpReplace:
		a.Record, err = s.store.Replace(ctx, *c.Record, c.Was)
	case driver.OpGet:
		a.Record, err = s.store.Get(ctx, c.ID)
	default:
		err = errors.New("worker: unknown method of the store: " + string(c.Method))
	}
	if err != nil {
		a.Error = err.Error()
		for kind, known := range kinds {
			if known != nil && errors.Is(err, known) {
				a.Kind = kind
			}
		}
	}
	return a
}

// remoteStore is the worker's side: a store that calls the parent's.
type remoteStore struct{ parent *wire }

func (s *remoteStore) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return s.call(ctx, storeCall{Method: driver.OpInsert, Record: &r, Now: now})
}

func (s *remoteStore) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return s.call(ctx, storeCall{Method: driver.OpReplace, Record: &r, Was: was})
}

func (s *remoteStore) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	return s.call(ctx, storeCall{Method: driver.OpGet, ID: id})
}

// call returns when ctx ends. The parent's call ends then too.
func (s *remoteStore) call(ctx context.Context, c storeCall) (*driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.Deadline, _ = ctx.Deadline()
	type result struct {
		answer storeAnswer
		err    error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = s.parent.call(c, &r.answer)
		done <- r
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		switch {
		case r.err != nil:
			return nil, r.err
		case r.answer.Kind > 0:
			return r.answer.Record, kinds[r.answer.Kind]
		case r.answer.Error != "":
			return r.answer.Record, errors.New(r.answer.Error)
		}
		return r.answer.Record, nil
	}
}

// wire is a connection of two pipes, on which each call is a JSON text and gets
// another one. It is safe for concurrent use.
type wire struct {
	r, w *os.File
	in   *json.Decoder
	out  *json.Encoder

	mu sync.Mutex
}

func newWire(r, w *os.File) *wire {
	return &wire{r: r, w: w, in: json.NewDecoder(r), out: json.NewEncoder(w)}
}

// call sends a call and waits for its answer. It returns syscall.EPIPE if the other
// process had ended before the call.
func (c *wire) call(in, out any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(in); err != nil {
		return err
	}
	return c.in.Decode(out)
}

// close closes the wire once no call waits for its answer.
func (c *wire) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.r.Close(), c.w.Close())
}

// serve answers the calls on a wire, one after the other, until the other process
// ends or the wire is closed.
func serve[In, Out any](c *wire, answer func(In) Out) error {
	for {
		var in In
		if err := c.in.Decode(&in); err != nil {
			return errors.Join(err, c.close())
		}
		if err := c.out.Encode(answer(in)); err != nil {
			return errors.Join(err, c.close())
		}
	}
}
