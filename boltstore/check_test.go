// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
)

const records = 200

// wholeFile returns a store's file with many pages: small records, a large one,
// and pages that were freed again.
func wholeFile(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "once.db")
	open(t, path).Close()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		if err := db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(boltstore.Bucket)
			for n := range 2 * records {
				r := record(n, time.Time{})
				if n == 1 {
					r.Result = bytes.Repeat([]byte("0123456789abcdef"), 4096)
				}
				value, err := boltstore.Encode(&r)
				if err != nil {
					return err
				}
				if keep && n >= records {
					err = b.Delete([]byte(r.ID))
				} else {
					err = b.Put([]byte(r.ID), value)
				}
				if err != nil {
					return err
				}
			}
			if keep {
				return b.SetSequence(records)
			}
			return b.SetSequence(2 * records)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func openBytes(t *testing.T, data []byte) (*boltstore.Store, string, error) {
	t.Helper()
	path := write(t, t.TempDir(), string(data))
	s, err := boltstore.Open(path)
	if s != nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, path, err
}

func TestWholeFile(t *testing.T) {
	t.Parallel()
	s, _, err := openBytes(t, wholeFile(t))
	if err != nil {
		t.Fatal(err)
	}
	for n := range records {
		want := record(n, time.Time{})
		got, err := s.Get(t.Context(), want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if n != 1 && !reflect.DeepEqual(*got, want) {
			t.Fatalf("got %+v\nwant %+v", *got, want)
		}
	}
}

func TestTruncatedFile(t *testing.T) {
	t.Parallel()
	data := wholeFile(t)
	page := os.Getpagesize()
	// The file grows ahead of need, so only the part before its last used page
	// counts.
	used := bytes.LastIndexFunc(data, func(r rune) bool { return r != 0 })
	for size := page / 2; size < used; size += page * 3 / 2 {
		s, path, err := openBytes(t, data[:size])
		if s != nil {
			t.Fatalf("a file truncated to %d of %d bytes was opened", size, len(data))
		}
		wantError(t, err, path)
		if msg := err.Error(); !strings.Contains(msg, "is damaged") && !strings.Contains(msg, "not a bbolt file") {
			t.Errorf("truncated to %d: the error is %q", size, msg)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	data := wholeFile(t)
	page := os.Getpagesize()
	zero := func(from, to int) []byte {
		d := bytes.Clone(data)
		clear(d[from:to])
		return d
	}
	flip := func(at int) []byte {
		d := bytes.Clone(data)
		d[at] ^= 0x10
		return d
	}
	noBucket := bytes.Clone(data)
	for at := 0; at < len(data); at += page {
		if bytes.Contains(data[at:at+page], boltstore.Bucket) {
			clear(noBucket[at+10 : at+12]) // the number of entries on the page
		}
	}
	for name, tt := range map[string]struct {
		data []byte
		want []string
	}{
		"no beginning":            {zero(0, 2*page), []string{"not a bbolt file, or its beginning is damaged"}},
		"both meta pages changed": {append(append(bytes.Clone(flip(40)[:page]), flip(page + 40)[page:2*page]...), data[2*page:]...), []string{"is damaged", "checksum"}},
		"another format":          {append(append(bytes.Clone(flip(20)[:page]), flip(page + 20)[page:2*page]...), data[2*page:]...), []string{"another format version", "was not changed"}},
		"no pages":                {zero(2*page, len(data)), []string{"is damaged", "restore it from a copy", "may then run again"}},
		"a record changed":        {bytes.ReplaceAll(data, []byte(`"why":"result"`), []byte(`"why":"result!`)), []string{"is damaged", "a record's checksum is wrong"}},
		"the keys' order":         {bytes.ReplaceAll(data, []byte("charge#"), []byte("chance#")), []string{"is damaged", "a record's checksum is wrong"}},
		"no bucket":               {noBucket, []string{"is damaged", "its records are missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path, err := openBytes(t, tt.data)
			if s != nil {
				t.Error("the file was opened")
			}
			wantError(t, err, append(tt.want, path)...)
			if after, _ := os.ReadFile(path); !bytes.Equal(after, tt.data) {
				t.Error("the file was changed")
			}
		})
	}
}

// TestRandomDamage: after any damage to the file, nothing crashes or hangs, and no
// altered record is returned.
func TestRandomDamage(t *testing.T) {
	t.Parallel()
	data := wholeFile(t)
	used := bytes.LastIndexFunc(data, func(r rune) bool { return r != 0 })
	opened, refused := 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := bytes.Clone(data)
		if seed%3 == 0 { // random positions rarely hit the headers of pages
			page := random.IntN(used / os.Getpagesize())
			d[page*os.Getpagesize()+random.IntN(64)] ^= 1 << random.IntN(8)
		} else {
			for range 1 + random.IntN(4) {
				d[random.IntN(used)] ^= byte(1 + random.IntN(255))
			}
		}
		s, path, err := openBytes(t, d)
		if err != nil {
			refused++
			wantError(t, err, "boltstore: ", path)
			continue
		}
		opened++
		for n := range records {
			want := record(n, time.Time{})
			got, err := s.Get(t.Context(), want.ID)
			if err == nil && n != 1 && !reflect.DeepEqual(*got, want) {
				t.Fatalf("seed %d: an altered record was returned", seed)
			}
			if errors.Is(err, idempotent.ErrNoRecord) {
				t.Errorf("seed %d: record %d is gone without an error", seed, n)
			}
		}
		for n := range 3 { // a write may find damage that a read does not
			s.Insert(t.Context(), record(records+n, time.Time{}), at)
		}
		if err := s.Close(); err != nil && !strings.Contains(err.Error(), "damaged") {
			t.Errorf("seed %d: Close: %v", seed, err)
		}
	}
	t.Logf("%d damaged files were refused, %d opened", refused, opened)
	if refused < 15 {
		t.Errorf("only %d of the damaged files were refused", refused)
	}
}

// TestDamageWhileOpen: the file is truncated while the store is open. Every later
// call fails, and the process survives.
func TestDamageWhileOpen(t *testing.T) {
	t.Parallel()
	s, path, err := openBytes(t, wholeFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		r := record(n, time.Time{})
		_, err := s.Insert(t.Context(), r, at)
		wantError(t, err, path, "is damaged")
		_, err = s.Replace(t.Context(), r, r.Version)
		wantError(t, err, path, "is damaged")
		_, err = s.Purge(t.Context(), at)
		wantError(t, err, path, "is damaged")
	}
	if err := s.Close(); err != nil {
		t.Logf("Close: %v", err)
	}
	if _, err := s.Get(t.Context(), record(0, time.Time{}).ID); err == nil {
		t.Error("a damaged store answered")
	}
}
