package model_test

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// mortal is a store in which a test can delete expired records, as a time to
// live does. It is for one goroutine.
type mortal struct {
	driver.Store
	gone map[idempotent.RecordID]bool
}

func newMortal(s driver.Store) *mortal {
	return &mortal{s, map[idempotent.RecordID]bool{}}
}

// delete deletes the record of that id, which must have an expiry.
func (m *mortal) delete(id idempotent.RecordID) { m.gone[id] = true }

func (m *mortal) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	if !m.gone[r.ID] {
		return m.Store.Insert(ctx, r, now)
	}
	// In the store below, it expires at the latest at the end of time.
	met, err := m.Store.Insert(ctx, r, began.AddDate(100, 0, 0))
	if met == nil && err == nil {
		delete(m.gone, r.ID)
	}
	return met, err
}

func (m *mortal) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	if m.gone[r.ID] {
		return nil, idempotent.ErrNoRecord
	}
	return m.Store.Replace(ctx, r, was)
}

func (m *mortal) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	if m.gone[id] {
		return nil, idempotent.ErrNoRecord
	}
	return m.Store.Get(ctx, id)
}
