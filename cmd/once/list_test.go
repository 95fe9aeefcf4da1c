// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

func TestList(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.once("list").ok().golden("list")
	d.once("list", "--state", "unknown").ok().golden("list-unknown")
	d.once("list", "--due").ok().golden("list-due")
	d.once("list", "--exhausted").ok().golden("list-exhausted")
	d.once("list", "--operation", "invoice", "--operation", "mail", "--state", "completed,in_progress").ok().golden("list-operation")
	d.once("list", "--limit", "2").ok().golden("list-limit")
	d.once("list", "--limit", "-1").exits(exitUsage)
	d.once("list", "--state", "lost").exits(exitUsage).says("in_progress")
	d.once("list", "--due", "--operation", "refund").ok().says("no such records").saysNot("list --due")
	d.once("list", "--state", "unknown", "--operation", "mail").ok().says("no such records", "see once list --state in_progress", "once list --due")
	if got := d.once("list", "--operation", "refund", "--full").ok().out; !strings.Contains(got, string(refundKey.RecordID())+"  ") || !strings.Contains(got, "a-very-long-name-of-a-refund\n") {
		t.Errorf("--full shortened:\n%s", got)
	}
	d.world.width = 60 // half a screen
	d.once("list").ok().golden("list-narrow")
	d.once("stats").ok().narrow(60)
	d.once("list").ok().narrow(60)
	d.world.width = 0 // a pipe
	if got := d.once("list").ok().out; strings.Contains(got, "…") {
		t.Errorf("output into a pipe was shortened:\n%s", got)
	}
}

func TestList_JSON(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	var ids []string
	for line := range strings.Lines(d.once("list", "--json", "--state", "unknown").ok().out) {
		var doc struct {
			Record, State string
			Steps         []struct{ Name, State string }
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil || doc.State != "unknown" {
			t.Errorf("%v: %s", err, line)
		}
		if strings.Contains(line, "h_1") {
			t.Errorf("a step's result is in the list: %s", line)
		}
		ids = append(ids, doc.Record)
	}
	want := []string{string(refundKey.RecordID()), string(transferKey.RecordID()), string(chargeKey.RecordID())}
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
	d.once("list", "--json", "--state", "unknown", "--limit", "1").ok().golden("list-json")
}

// List returns the oldest records, in whatever order they are found.
func TestList_Limit(t *testing.T) {
	t.Parallel()
	const many = 50
	var all []driver.Record
	for i := range many {
		age := time.Duration((i*37)%many) * time.Minute
		all = append(all, record(key("charge", "acme", fmt.Sprint(i)), age, func(r *driver.Record) { r.Due = r.LeaseEnd }))
	}
	for _, limit := range []int{1, 7, many - 1, many, many + 1} {
		o := &oldest{limit: limit}
		for i := range all {
			if o.add(&all[i]); len(o.views) >= 2*limit {
				t.Fatalf("%d records are held for a limit of %d", len(o.views), limit)
			}
		}
		views := o.sorted()
		if len(views) != min(limit, many) {
			t.Errorf("limit %d: %d records", limit, len(views))
		}
		for i, v := range views {
			if want := before(time.Duration(many-1-i) * time.Minute); !v.Created.Equal(want) {
				t.Errorf("limit %d: %d: created %s, want %s", limit, i, v.Created, want)
			}
		}
	}
	d := newDesk(t, all...)
	d.once("list", "--limit", "2").ok().says("once: 2 of 50 records, the oldest; --limit 0 lists all\n")
	d.once("list", "--limit", "50").ok().saysNot("--limit")
}

// A list without a limit is printed while it is read: an interruption after the
// first output leaves the records that were read before.
func TestList_Streams(t *testing.T) {
	t.Parallel()
	var all []driver.Record
	for i := range 3 * pageRows {
		all = append(all, record(key("charge", "acme", fmt.Sprint(i)), time.Minute, func(*driver.Record) {}))
	}
	d := newDesk(t, all...)
	for args, first := range map[string]int{"--json=false": pageRows, "--json": 1} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		printed := 0
		w := d.world
		w.stdout = writerFunc(func(text string) {
			printed += strings.Count(text, "charge#")
			if printed >= first {
				cancel()
			}
		})
		w.stderr = io.Discard
		if code := run(ctx, &w, []string{"list", "--limit", "0", args, "--file", d.file}); code != exitFailure || printed < first || printed == len(all) {
			t.Errorf("%s: exit code %d, and %d of %d records were printed", args, code, printed, len(all))
		}
		if n := strings.Count(d.once("list", "--limit", "0", args).ok().saysNot("--limit").out, "\n"); n < len(all) || n > len(all)+1 {
			t.Errorf("%s: %d lines for %d records", args, n, len(all))
		}
	}
}

// An unreadable record is reported and does not hide the others.
func TestList_Unreadable(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	future := record(key("future", "acme", "1"), time.Hour, func(*driver.Record) {})
	d.store(func(s *boltstore.Store) {
		if met, err := s.Insert(t.Context(), future, night); met != nil || err != nil {
			t.Fatal(met, err)
		}
	})
	d.age(future.ID)
	d.once("list").exits(exitFailure).says("POST /charges#4RexMqXSY3Lf", "future#", "1 record could not be read")
	d.once("stats").exits(exitFailure).says("1 record could not be read", "unknown")
	d.once("show", string(future.ID)).exits(exitFailure).says("later one")
}

// age gives a stored record a later format version.
func (d *desk) age(id idempotent.RecordID) {
	d.t.Helper()
	db, err := bbolt.Open(d.file, 0o600, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			data := bytes.Clone(b.Get([]byte(id)))
			if len(data) < 5 {
				return nil
			}
			data[4]++ // after the checksum of the id and of the rest
			castagnoli := crc32.MakeTable(crc32.Castagnoli)
			sum := crc32.Update(crc32.Checksum([]byte(id), castagnoli), castagnoli, data[4:])
			copy(data, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
			return b.Put([]byte(id), data)
		})
	})
	if err != nil {
		d.t.Fatal(err)
	}
}
