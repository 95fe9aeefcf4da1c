// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
)

// A retry gets the first response, also after a restart of the program.
func TestServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "once.db")
	for _, replayed := range []string{"", "true"} {
		store, err := boltstore.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		guard, err := idempotent.New(store)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(newServer(guard))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/charges", strings.NewReader(`{"amount":4200}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		req.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || string(body) != `{"id":"ch_1"}` || answer.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("got %v, %s, %v; want the charge, replayed: %q", answer, body, err, replayed)
		}
		server.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each message of the file runs once, although the program runs twice.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	const event = `{"Records":[{"messageId":"m-1","eventSourceARN":"arn:aws:sqs:eu-central-1:123456789012:orders","body":"{\"order_id\":\"o-1\"}"}]}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "events.json"), []byte(event+strings.Replace(event, "o-1", "o-2", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "laptop")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, taken := range []int{2, 0} {
		cmd := exec.CommandContext(t.Context(), program, "events.json")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "taking") != taken || strings.Count(string(out), "1 messages, failed: [] <nil>\n") != 2 {
			t.Errorf("%v, want %d messages taken, and none failed:\n%s", err, taken, out)
		}
	}
}
