// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

func TestStore_Choice(t *testing.T) {
	t.Parallel()
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, row := range []struct {
		flags       operate.StoreFlags
		getenv      func(string) string
		table, file string
		says        string
	}{
		{operate.StoreFlags{}, env(), "", "", "no store is named"},
		{operate.StoreFlags{Table: "t", File: "f"}, env(), "", "", "both"},
		{operate.StoreFlags{}, env("ONCE_TABLE", "t", "ONCE_FILE", "f"), "", "", "both"},
		{operate.StoreFlags{File: "f", Region: "eu-central-1"}, env(), "", "", "for a table"},
		{operate.StoreFlags{File: "f", Prefix: "ONCE#"}, env(), "", "", "for a table"},
		{operate.StoreFlags{File: "f", Endpoint: "http://127.0.0.1"}, env(), "", "", "for a table"},
		{operate.StoreFlags{Table: "t"}, env(), "t", "", ""},
		{operate.StoreFlags{File: "f"}, env("ONCE_TABLE", "t"), "", "f", ""},
		{operate.StoreFlags{Table: "t"}, env("ONCE_TABLE", "other", "ONCE_FILE", "f"), "t", "", ""},
		{operate.StoreFlags{}, env("ONCE_TABLE", "t"), "t", "", ""},
		{operate.StoreFlags{}, env("ONCE_FILE", "f"), "", "f", ""},
		{operate.StoreFlags{Name: "old-orders"}, env("ONCE_TABLE", "t", "ONCE_TABLE_OLD_ORDERS", "o"), "o", "", ""},
		{operate.StoreFlags{Name: "old-orders"}, env("ONCE_TABLE", "t", "ONCE_FILE_OLD_ORDERS", "f"), "", "f", ""},
		{operate.StoreFlags{Name: "orders"}, env("ONCE_TABLE", "t"), "", "", "set ONCE_TABLE_ORDERS or ONCE_FILE_ORDERS"},
		{operate.StoreFlags{Name: "orders", Table: "t"}, env("ONCE_TABLE_ORDERS", "o"), "", "", "--store orders"},
		{operate.StoreFlags{Name: "orders", File: "f"}, env("ONCE_TABLE_ORDERS", "o"), "", "", "--store orders"},
	} {
		table, file, err := row.flags.Choose(row.getenv)
		if row.says != "" {
			if operate.ExitCode(err) != operate.ExitUsage || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%+v: got %v, want %q", row.flags, err, row.says)
			}
		} else if err != nil || table != row.table || file != row.file {
			t.Errorf("%+v: got %q, %q, %v", row.flags, table, file, err)
		}
	}
}

// A setting of the table comes from its flag. The environment describes the table
// that it names, and no other.
func TestSetting(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ONCE_CHUNK_TABLE", "ONCE_PARTITION_KEY", "ONCE_SORT_KEY", "ONCE_PREFIX", "ONCE_TTL_ATTRIBUTE", "ONCE_CONSISTENCY"} {
		getenv := func(asked string) string { return "of " + asked }
		flags := operate.StoreFlags{ChunkTable: "flag", PartitionKey: "flag", SortKey: "flag", Prefix: "flag", TTLAttribute: "flag", Consistency: "flag"}
		for _, store := range []string{"", "orders"} {
			asked := tabledef.Variable(name, store)
			if flags.Name = store; (&operate.Env{Getenv: getenv, Flags: flags}).Setting(asked) != "flag" {
				t.Errorf("%s is not that of its flag", asked)
			}
			if got := (&operate.Env{Getenv: getenv, Flags: operate.StoreFlags{Name: store}}).Setting(asked); got != "of "+asked {
				t.Errorf("%s is %q, want that of the environment", asked, got)
			}
		}
		if got := (&operate.Env{Getenv: getenv, Flags: operate.StoreFlags{Table: "t"}}).Setting(name); got != "" {
			t.Errorf("%s of another table is %q", name, got)
		}
	}
}

// slow is a store of which each read takes a second.
type slow struct{ operate.Store }

// Get returns a record.
func (slow) Get(_ context.Context, id idempotent.RecordID) (*driver.Record, error) {
	time.Sleep(time.Second)
	return &driver.Record{ID: id}, nil
}

// The records of a list are read 16 at a time, also before its error, which a reader
// that stops does not get.
func TestRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := func(yield func(driver.Listed, error) bool) {
			for i := range 40 {
				if !yield(driver.Listed{ID: idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID()}, nil) {
					return
				}
			}
			yield(driver.Listed{}, io.ErrUnexpectedEOF)
		}
		for stop, seconds := range map[int]time.Duration{5: 1, 33: 3, 50: 3} {
			n, began := 0, time.Now()
			for r, err := range operate.Read(t.Context(), slow{}, list, nil, func(*driver.Record) bool { return true }) {
				if n++; (err != nil) != (n == 41) || (r.ID == "") != (n == 41) {
					t.Errorf("%d: %s, %v", n, r.ID, err)
				}
				if n == stop {
					break
				}
			}
			if took := time.Since(began); n != min(stop, 41) || took != seconds*time.Second {
				t.Errorf("%d yielded in %s to a reader of %d", n, took, stop)
			}
		}
	})
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ operation, code, says string }{
		{"Query", "ValidationException", "--no-index"},
		{"PutItem", "ValidationException", "once table check"},
		{"UpdateTable", "ValidationException", ""}, // about regions, not about keys
		{"Scan", "ResourceNotFoundException", "once table create"},
		{"Query", "ResourceNotFoundException", "once table check"}, // also for a missing index
		{"Scan", "ExpiredTokenException", "log in again"},
		{"Query", "ExpiredTokenException", "log in again"},
		{"Scan", "UnrecognizedClientException", "log in again"},
		{"Query", "AccessDeniedException", "--no-index"}, // the store's error names the permission
		{"Scan", "AccessDeniedException", "--profile"},
		{"Scan", "InternalServerError", ""},
	} {
		err := fmt.Errorf("dynamostore: %w", &smithy.OperationError{OperationName: row.operation, Err: &smithy.GenericAPIError{Code: row.code}})
		if got := operate.Advice(err, false); row.says == "" && got != "" || !strings.Contains(got, row.says) {
			t.Errorf("%s, %s: got %q, want %q", row.operation, row.code, got, row.says)
		}
	}
	if got := operate.Advice(fmt.Errorf("dynamostore: %w", &url.Error{Op: "Post", Err: io.EOF}), false); !strings.Contains(got, "the network") {
		t.Errorf("no network: got %q", got)
	}
	if got := operate.Advice(&smithy.GenericAPIError{Code: "ResourceNotFoundException"}, false); !strings.Contains(got, "once table create") {
		t.Errorf("no operation: got %q", got)
	}
	if got := operate.Advice(errors.New("any"), false); got != "" {
		t.Errorf("got %q", got)
	}
}

// The oldest records are kept, in whatever order they are found, and few others.
func TestOldest(t *testing.T) {
	t.Parallel()
	const many = 50
	for _, limit := range []int{1, 7, many - 1, many, many + 1} {
		o := &oldest{limit: limit}
		for i := range many {
			age := time.Duration((i*37)%many) * time.Minute
			o.add(&driver.Record{ID: idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID(), Created: night.Add(-age)})
			if len(o.views) >= 2*limit || i+1 < 2*limit && len(o.views) != i+1 {
				t.Fatalf("%d records of %d are held for a limit of %d", len(o.views), i+1, limit)
			}
		}
		views := o.sorted()
		if len(views) != min(limit, many) {
			t.Errorf("limit %d: %d records", limit, len(views))
		}
		for i, v := range views {
			if want := night.Add(-time.Duration(many-1-i) * time.Minute); !v.Created.Equal(want) {
				t.Errorf("limit %d: %d: created %s, want %s", limit, i, v.Created, want)
			}
		}
	}
}
