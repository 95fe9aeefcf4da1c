package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
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
	d.once("list", "--due", "--exhausted").exits(exitUsage)
	d.once("list", "--due", "--operation", "refund").ok().says("no such records")
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
	s := &selection{limit: 7}
	for i := range all {
		s.add(&all[i])
	}
	for i, v := range s.sorted() {
		if want := before(time.Duration(many-1-i) * time.Minute); !v.Created.Equal(want) {
			t.Errorf("%d: created %s, want %s", i, v.Created, want)
		}
	}
	if s.total != many || len(s.views) != 7 {
		t.Errorf("%d of %d", len(s.views), s.total)
	}
	d := newDesk(t, all...)
	d.once("list", "--limit", "0").ok().saysNot("--limit")
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
	d.once("list").exits(exitFailure).says("POST /charges#wiF9Nlkg_8wN", "future#", "1 record could not be read")
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
