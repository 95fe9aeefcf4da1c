// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
)

// childPath, if set in the environment, makes the test binary write records into
// that file for ever instead of running tests.
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
