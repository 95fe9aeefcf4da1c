// SPDX-License-Identifier: Apache-2.0

package idempotencyclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotencyclient"
)

// The first attempt has no response, because the connection breaks. The client sends
// the request again with the same key.
func Example() {
	first := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if first == "" {
			first = key
			panic(http.ErrAbortHandler) // no response
		}
		fmt.Println("the same key:", key == first)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	}))
	defer server.Close()

	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts = []string{server.Listener.Addr().String()} // it honours idempotency keys
		o.MinDelay = time.Millisecond
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post(server.URL+"/charges", "application/json", strings.NewReader(`{"amount":4200}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(body), err)
	// Output:
	// the same key: true
	// 201 Created {"id":"ch_1"} <nil>
}

// A declined card is an answer, and is not repeated.
func ExampleCheck() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"title":"Payment Required","status":402,"code":"card_declined","detail":"The card was declined."}`)
	}))
	defer server.Close()
	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts = []string{server.Listener.Addr().String()}
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	err = post(client, server.URL+"/charges", strings.NewReader(`{"amount":4200}`))
	if p := (*idempotencyclient.Problem)(nil); errors.As(err, &p) {
		fmt.Println(p.Code, "-", p.Detail, "Unknown:", p.Unknown())
	}
	// Output: card_declined - The card was declined. Unknown: false
}

func post(client *http.Client, url string, body io.Reader) error {
	resp, err := client.Post(url, "application/json", body)
	if err != nil {
		return err // after the last attempt; errors.As with *idempotencyclient.Error
	}
	defer resp.Body.Close()
	if err := idempotencyclient.Check(resp); err != nil {
		return err // errors.As with *idempotencyclient.Problem
	}
	return nil
}

// The program is started twice. The second one does not know what became of the
// request, and repeats it with its key.
func ExampleWithName() {
	keys := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")]++
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "pending")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	for range 2 {
		if err := charge(context.Background(), server, dir); err != nil {
			panic(err)
		}
	}
	fmt.Println("keys:", len(keys))
	// Output: keys: 1
}

func charge(ctx context.Context, server *httptest.Server, dir string) error {
	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts = []string{server.Listener.Addr().String()}
		o.PendingDir = dir
	})
	if err != nil {
		return err
	}
	ctx = idempotencyclient.WithName(ctx, "charge order 17")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/charges", strings.NewReader(`{"amount":4200}`))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
