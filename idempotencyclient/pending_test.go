// SPDX-License-Identifier: Apache-2.0

package idempotencyclient_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotencyclient"
)

func inDir(dir string) func(*idempotencyclient.Options) {
	return func(o *idempotencyclient.Options) { o.PendingDir = dir }
}

// sendNamed sends a request of a name and returns its key.
func sendNamed(t *testing.T, transport *idempotencyclient.Transport, s *server, name string) (string, error) {
	t.Helper()
	s.got = nil
	_, _, err := sendRequest(t, transport, newRequest(t, idempotencyclient.WithName(t.Context(), name), http.MethodPost, api, "the amount is 4200"))
	if err != nil {
		return "", err
	}
	return s.sameKey(t), nil
}

// A restarted program sends a named request with the key of the first one, until the
// key is forgotten. The folder has neither names nor bodies.
func TestPending(t *testing.T) {
	t.Parallel()
	dir, s := filepath.Join(t.TempDir(), "deep", "pending"), &server{}
	send := func(name string) string {
		t.Helper()
		key, err := sendNamed(t, newTransport(t, s, inDir(dir)), s, name)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := send("charge order 17")
	if again := send("charge order 17"); again != first {
		t.Error("a restarted program has another key")
	}
	if other := send("charge order 18"); other == first {
		t.Error("two names have one key")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || strings.Contains(f.Name()+string(data), "17") && strings.Contains(string(data), "order") || strings.Contains(string(data), "amount") {
			t.Errorf("the file %s has %s, %v", f.Name(), data, err)
		}
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has the mode %v, %v", info.Mode(), err)
	}
	transport := newTransport(t, s, inDir(dir))
	for range 2 { // also if it is forgotten already
		if err := transport.Forget("charge order 17"); err != nil {
			t.Error(err)
		}
	}
	if renewed := send("charge order 17"); renewed == first {
		t.Error("a key that was forgotten is used again")
	}
}

// Of many that use a name at once, all get one key.
func TestPending_AtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var group sync.WaitGroup
	keys := make([]string, 16)
	for i := range keys {
		group.Go(func() {
			s := &server{}
			key, err := sendNamed(t, newTransport(t, s, inDir(dir)), s, "charge order 17")
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	group.Wait()
	for _, key := range keys {
		if key != keys[0] {
			t.Errorf("two keys: %v", keys)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// An old key is refused, and so is a damaged one: neither is ever replaced.
func TestPending_Refuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, s := t.TempDir(), &server{}
		transport := newTransport(t, s, inDir(dir))
		first, err := sendNamed(t, transport, s, "order")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour - time.Millisecond)
		if again, err := sendNamed(t, transport, s, "order"); again != first || err != nil {
			t.Errorf("before the end of the retention: %v", err)
		}
		time.Sleep(time.Millisecond)
		_, err = sendNamed(t, transport, s, "order")
		if !errors.Is(err, idempotencyclient.ErrKeyExpired) || len(s.got) != 0 ||
			err.Error() != "idempotencyclient: POST api.example.com: the request was not sent: the key of this name is older than Options.Retention" {
			t.Errorf("after it: %d requests, %v", len(s.got), err)
		}

		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, content := range []string{"", "{", `{"key":""}`, `{"key":"k","created":"x"}`} {
			if err := os.WriteFile(files[0], []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = sendNamed(t, transport, s, "order")
			if want := "the key in the file " + files[0] + " is damaged; find out whether the request was executed, then call Forget"; err == nil ||
				!strings.HasSuffix(err.Error(), want) || len(s.got) != 0 {
				t.Errorf("%q: %d requests, %v", content, len(s.got), err)
			}
		}

		// The clock was wrong when the key was stored, or is now: its age is not known.
		for ahead, refused := range map[time.Duration]bool{time.Minute: false, time.Minute + 1: true, 200 * 365 * 24 * time.Hour: true} {
			created := time.Now().Add(ahead).Format(time.RFC3339Nano)
			if err := os.WriteFile(files[0], []byte(`{"key":"k","created":"`+created+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = sendNamed(t, transport, s, "order")
			want := "the key in the file " + files[0] + " is dated in the future (" + created + "), so its age is not known; correct the clock, or find out whether the request was executed, then call Forget"
			if (err != nil) != refused || refused && (!strings.HasSuffix(err.Error(), want) || errors.Is(err, idempotencyclient.ErrKeyExpired) || len(s.got) != 0) {
				t.Errorf("%v ahead: %d requests, %v", ahead, len(s.got), err)
			}
		}
	})
}

// Without a folder, a name is an error: the program would rely on it.
func TestPending_Unavailable(t *testing.T) {
	t.Parallel()
	s := &server{}
	_, err := sendNamed(t, newTransport(t, s), s, "order")
	if want := "idempotencyclient: POST api.example.com: the request was not sent: a name needs Options.PendingDir, which is not set"; err == nil || err.Error() != want || len(s.got) != 0 {
		t.Errorf("got %d requests, %v", len(s.got), err)
	}
	if err := newTransport(t, s).Forget("order"); err == nil || err.Error() != "idempotencyclient: forget a key: a name needs Options.PendingDir, which is not set" {
		t.Errorf("got %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts, o.PendingDir = []string{"x"}, filepath.Join(file, "pending")
	})
	if err == nil || !strings.HasPrefix(err.Error(), "idempotencyclient: open PendingDir: mkdir ") {
		t.Errorf("got %v", err)
	}

	dir := filepath.Join(t.TempDir(), "pending")
	transport := newTransport(t, s, inDir(dir))
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := sendNamed(t, transport, s, "order"); err == nil || !strings.Contains(err.Error(), ": store its key in PendingDir: ") || len(s.got) != 0 {
		t.Errorf("got %d requests, %v", len(s.got), err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sendNamed(t, transport, s, "order"); err == nil || !strings.Contains(err.Error(), ": read its key in PendingDir: ") || len(s.got) != 0 {
		t.Errorf("got %d requests, %v", len(s.got), err)
	}
	if err := transport.Forget("order"); err == nil || !strings.HasPrefix(err.Error(), "idempotencyclient: forget a key: remove ") {
		t.Errorf("got %v", err)
	}
}
