// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// paths maps a store of the suite to its file.
type paths struct{ of sync.Map }

func (p *paths) open(t testing.TB) driver.Store {
	s, path := newStore(t)
	p.of.Store(s, path)
	return s
}

func (p *paths) reopen(t testing.TB, s driver.Store) driver.Store {
	t.Helper()
	if err := s.(*boltstore.Store).Close(); err != nil {
		t.Fatal(err)
	}
	path, _ := p.of.Load(s)
	return open(t, path.(string))
}

func open(t testing.TB, path string, optFns ...func(*boltstore.Options)) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(path, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// newStore returns a store in a new file, and its path.
func newStore(t testing.TB) (*boltstore.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "once.db")
	return open(t, path), path
}

func fixture() idempotenttest.Fixture {
	p := &paths{}
	return idempotenttest.Fixture{
		Open:   p.open,
		Reopen: p.reopen,
		Remove: func(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
			return boltstore.Remove(ctx, s.(*boltstore.Store), id)
		},
		Damage: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
			return boltstore.Put(s.(*boltstore.Store), map[idempotent.RecordID][]byte{id: boltstore.Later(id)})
		},
	}
}

func TestConformance(t *testing.T) { idempotenttest.RunStore(t, fixture()) }

// G13: a store in one file keeps the guarantees of a guard.
func TestFailureModes(t *testing.T) {
	idempotenttest.RunFailureModes(t, fixture(), func(o *idempotenttest.FailureModesOptions) { o.Seeds = 5 })
}

var at = time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.UTC)

// record returns a completed record of the n-th key that expires at expires.
func record(n int, expires time.Time) driver.Record {
	key := idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: fmt.Sprint("order-", n)}
	return driver.Record{
		ID:          key.RecordID(),
		State:       driver.StateCompleted,
		Reason:      driver.ReasonResult,
		Version:     version(byte(n)),
		Attempt:     1,
		Fingerprint: idempotent.FingerprintBytes(nil),
		LeaseEnd:    at,
		Expires:     expires,
		Created:     at,
		Since:       at,
		Encoding:    "json",
		Result:      []byte(`"the result"`),
	}
}

func version(b byte) (v driver.Version) {
	v[0], v[15] = b, 1
	return v
}

func insert(t testing.TB, s *boltstore.Store, r driver.Record) {
	t.Helper()
	if met, err := s.Insert(t.Context(), r, at); err != nil || met != nil {
		t.Fatalf("Insert: got %v, %v", met, err)
	}
}

// TestRefusalDoesNotSync: a request that finds a live record writes nothing. Every
// commit would give the file a new transaction id.
func TestRefusalDoesNotSync(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	r := record(1, time.Time{})
	insert(t, s, r)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if met, err := s.Insert(t.Context(), r, at); err != nil || met == nil {
			t.Fatalf("Insert over a live record: got %v, %v", met, err)
		}
		if met, err := s.Replace(t.Context(), r, version(9)); err != nil || met == nil {
			t.Fatalf("Replace of another version: got %v, %v", met, err)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("refusals changed the file")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	text := func(text string) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string { return write(t, dir, text) }
	}
	for name, row := range map[string]struct {
		path func(t *testing.T, dir string) string
		want []string
	}{
		"no path":      {func(*testing.T, string) string { return "" }, []string{"missing path"}},
		"no directory": {func(_ *testing.T, dir string) string { return filepath.Join(dir, "missing", "once.db") }, []string{"does not exist", "mkdir -p"}},
		"a directory":  {func(_ *testing.T, dir string) string { return dir }, []string{"is a directory", "name a file in it"}},
		"below a file": {func(t *testing.T, dir string) string { return filepath.Join(write(t, dir, "x"), "once.db") }, []string{"cannot open"}},
		"a text":       {text("dear diary\n"), []string{"is not a bbolt file", "was not changed"}},
		"a long text":  {text(strings.Repeat("dear diary\n", 10_000)), []string{"is not a bbolt file"}},
		"another program's": {func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "once.db")
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.Update(func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("theirs"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return path
		}, []string{"another program", "choose another path"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := row.path(t, t.TempDir())
			before, _ := os.ReadFile(path)
			s, err := boltstore.Open(path)
			if s != nil {
				t.Error("Open returned a store")
			}
			wantError(t, err, append(row.want, path)...)
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

// write puts text into a new file in dir and returns its path.
func write(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got the error %q, want %q in it", err, part)
		}
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := record(1, time.Time{})
	_, err := s.Insert(t.Context(), r, at)
	wantError(t, err, "the store is closed")
	_, err = s.Replace(t.Context(), r, r.Version)
	wantError(t, err, "the store is closed")
	_, err = s.Get(t.Context(), r.ID)
	wantError(t, err, "the store is closed")
	_, err = s.Purge(t.Context(), at)
	wantError(t, err, "the store is closed")
}

// TestContextEndsWhileWaiting: a waiting writer waits only until its context ends.
func TestContextEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	release := boltstore.HoldWriter(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Insert(ctx, record(1, time.Time{}), at)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	release()
	insert(t, s, record(1, time.Time{}))
}

// Errors that root cannot cause in a test, and errors of bbolt and the disk. They name
// the file and what to do.
func TestErrors(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	for want, err := range map[string]error{
		"no permission to read and write": &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES},
		"change the permissions":          &fs.PathError{Op: "open", Path: path, Err: syscall.EROFS},
		"cannot open":                     syscall.EIO,
		"is damaged":                      errors.New("file size too small"),
	} {
		wantError(t, boltstore.OpenError(path, err), want, path)
	}
	full := boltstore.Explain(s, &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
	wantError(t, full, path, "the disk is full", "free some space", "no space left on device")
	if !errors.Is(full, syscall.ENOSPC) {
		t.Errorf("%v does not match its cause", full)
	}
	wantError(t, boltstore.Explain(s, berrors.ErrDatabaseNotOpen), path, "the store is closed")
	wantError(t, boltstore.Explain(s, syscall.EIO), path, "input/output error")
	if err := boltstore.Explain(s, berrors.ErrValueTooLarge); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// Open syncs the directory of a new file, which is private, before it writes to the
// file. It does so too if the creator of the file died before that.
func TestOpenSyncsTheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "once.db")
	synced := 0
	count := boltstore.SyncDir(func(d string) error {
		db, err := os.ReadFile(path)
		if d != dir || err != nil || strings.Contains(string(db), string(boltstore.Bucket)) {
			t.Errorf("synced %s, and the file has %d bytes, %v", d, len(db), err)
		}
		synced++
		return nil
	})
	failure := errors.New("the disk is gone")
	if s, err := boltstore.Open(path, boltstore.SyncDir(func(string) error { return failure })); s != nil || !errors.Is(err, failure) {
		t.Fatalf("Open: %v, %v; want the error of the directory", s, err)
	}
	open(t, path, count).Close()
	open(t, path, count).Close()
	if synced != 1 {
		t.Errorf("the directory was synced %d times, want once", synced)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v (%v), want 600: results may be private", info.Mode(), err)
	}
}

// Open waits for another process to release the file for LockTimeout, by default for a
// second.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	held, path := newStore(t)
	for timeout, want := range map[time.Duration]time.Duration{0: time.Second, 300 * time.Millisecond: 300 * time.Millisecond} {
		began := time.Now()
		_, err := boltstore.Open(path, func(o *boltstore.Options) { o.LockTimeout = timeout })
		took := time.Since(began)
		wantError(t, err, path, "held by another process", "was not released within "+want.String())
		if took < want-100*time.Millisecond {
			t.Errorf("it waited for %s, want at least %s", took, want)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	_, err := boltstore.Open("once.db", func(o *boltstore.Options) { o.LockTimeout = -1 })
	wantError(t, err, "LockTimeout", "must be positive")
}

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
// altered record is returned. The whole file has all of them.
func TestRandomDamage(t *testing.T) {
	t.Parallel()
	data := wholeFile(t)
	used := bytes.LastIndexFunc(data, func(r rune) bool { return r != 0 })
	opened, refused := 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := bytes.Clone(data)
		switch {
		case seed == 0: // whole
		case seed%5 == 4: // it grows ahead of need, so only the part before its last used page counts
			d = d[:random.IntN(used)]
		case seed%3 == 0: // random positions rarely hit the headers of pages
			page := random.IntN(used / os.Getpagesize())
			d[page*os.Getpagesize()+random.IntN(64)] ^= 1 << random.IntN(8)
		default:
			for range 1 + random.IntN(4) {
				d[random.IntN(used)] ^= byte(1 + random.IntN(255))
			}
		}
		s, path, err := openBytes(t, d)
		if err != nil && seed > 0 {
			refused++
			wantError(t, err, "boltstore: ", path)
			continue
		}
		if opened++; err != nil {
			t.Fatal(err)
		}
		for n := range records {
			want := record(n, time.Time{})
			got, err := s.Get(t.Context(), want.ID)
			if err == nil && n != 1 && !reflect.DeepEqual(*got, want) {
				t.Fatalf("seed %d: an altered record was returned", seed)
			}
			if seed == 0 && err != nil {
				t.Fatal(err)
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

// childPath, if set in the environment, makes the test binary write records into
// that file without end instead of running tests.
const childPath = "BOLTSTORE_TEST_CHILD_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver inserts and replaces records, starting where an earlier process was
// killed, and prints a line for each acknowledged write.
func writeForEver(path string) error {
	ctx := context.Background()
	s, err := boltstore.Open(path)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		r := record(n, time.Time{})
		r.Version = version(1)
		met, err := s.Insert(ctx, r, at)
		if err != nil {
			return err
		}
		if met != nil {
			continue
		}
		fmt.Println("inserted", n)
		r.Version = version(2)
		if met, err := s.Replace(ctx, r, version(1)); err != nil || met != nil {
			return fmt.Errorf("Replace: %v, %w", met, err)
		}
		fmt.Println("replaced", n)
	}
}

// TestKill: an acknowledged write survives a kill -9 at any moment, and the file
// opens without repair.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	acknowledged := map[int]byte{} // number of the record -> its version
	for round := range 5 {
		killed := runAndKill(t, path, 20+15*round, acknowledged)
		if killed == 0 {
			t.Fatal("the child was killed before it wrote anything: the test is void")
		}
		s := open(t, path)
		for n, v := range acknowledged {
			got, err := s.Get(t.Context(), record(n, time.Time{}).ID)
			if err != nil {
				t.Fatalf("round %d: record %d was acknowledged and is gone: %v", round, n, err)
			}
			// A write after the last printed line may exist.
			if got.Version != version(v) && got.Version != version(2) {
				t.Errorf("round %d: record %d has version %x, acknowledged was %d", round, n, got.Version, v)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d acknowledged records survived 5 kills", len(acknowledged))
}

// runAndKill runs the child, kills it after a number of acknowledgements, and
// records all that it printed.
func runAndKill(t *testing.T, path string, after int, acknowledged map[int]byte) (lines int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childPath+"="+path)
	var stderr strings.Builder
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(out); scan.Scan(); {
		var did string
		var n int
		if _, err := fmt.Sscan(scan.Text(), &did, &n); err != nil {
			t.Fatalf("the child printed %q", scan.Text())
		}
		acknowledged[n] = map[string]byte{"inserted": 1, "replaced": 2}[did]
		if lines++; lines == after {
			child.Process.Kill() // SIGKILL, by its pid; the loop reads what it printed before
		}
	}
	child.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("the child failed: %s", stderr.String())
	}
	return lines
}

// The second process replays the stored response of the first.
func Example() {
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for process := 1; process <= 2; process++ {
		store, err := boltstore.Open(filepath.Join(dir, "once.db"))
		if err != nil {
			log.Fatal(err)
		}
		guard, err := idempotent.New(store)
		if err != nil {
			log.Fatal(err)
		}
		key := idempotent.Key{
			Operation:   "charge",
			Scope:       idempotent.Global,
			ID:          "8e03978e-40d5-43e8-bc93-6894a57f9324",
			Fingerprint: idempotent.FingerprintBytes([]byte("4200 usd")),
		}
		id, err := idempotent.Do(context.Background(), guard, key, func(context.Context) (string, error) {
			fmt.Println("charging")
			return "ch_1", nil
		})
		fmt.Println("process", process, "answers", id, err)
		if err := store.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// charging
	// process 1 answers ch_1 <nil>
	// process 2 answers ch_1 <nil>
}
