// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/once-lambda/once/idempotent"
)

// Charge is a charge at the provider, as clients of this function see it.
type Charge struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Customer string `json:"customer"`
	Status   string `json:"status"`
}

// MetadataRecord is the name of the record's id in the metadata of a charge.
const MetadataRecord = "record"

// The known results of a call to the provider. After any other error of
// [Client.Charge], it is unknown whether the customer was charged.
var (
	// ErrDeclined: the provider declined the card, and nothing was charged.
	ErrDeclined = errors.New("charge: the card was declined")
	// ErrNotSent: there was no connection to the provider, so nothing was charged.
	ErrNotSent = errors.New("charge: the provider cannot be reached")
	// ErrNoCharge: the provider has no such charge.
	ErrNoCharge = errors.New("charge: no such charge")
)

// Client talks to the payment provider. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client for the provider at base, for example
// "http://127.0.0.1:8080/provider".
func NewClient(base string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New(`charge: invalid provider address: must be a URL like "http://127.0.0.1:8080/provider"`)
	}
	// A redirect could send the charge to an unknown host.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{strings.TrimSuffix(base, "/"), &http.Client{CheckRedirect: stay}}, nil
}

// Charge charges the customer, once per key: for a repeated key the provider
// returns the charge that it made the first time. If ctx is that of a guarded
// handler, the charge's metadata names the record, so that the provider's events
// name it too.
func (c *Client) Charge(ctx context.Context, key string, r Request) (Charge, error) {
	metadata := map[string]string{}
	if execution, ok := idempotent.FromContext(ctx); ok {
		metadata[MetadataRecord] = string(execution.RecordID())
	}
	body, _ := json.Marshal(struct { // strings and numbers always encode
		Request
		Metadata map[string]string `json:"metadata"`
	}{r, metadata})

	// Without a connection nothing can have happened, whatever the error is.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	var charge Charge
	status, err := c.do(ctx, http.MethodPost, "/charges", key, body, &charge)
	switch {
	case err != nil && !connected.Load():
		return Charge{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	case err != nil:
		return Charge{}, err
	case status == http.StatusPaymentRequired:
		return Charge{}, ErrDeclined
	case status != http.StatusCreated || charge.ID == "":
		return Charge{}, unclear(status)
	}
	return charge, nil
}

// Get returns a charge by its id, or [ErrNoCharge], and the id of the record that it
// was made for: a webhook settles that one.
func (c *Client) Get(ctx context.Context, id string) (Charge, idempotent.RecordID, error) {
	var found struct {
		Charge
		Metadata map[string]string `json:"metadata"`
	}
	status, err := c.do(ctx, http.MethodGet, "/charges/"+url.PathEscape(id), "", nil, &found)
	switch {
	case err != nil:
		return Charge{}, "", err
	case status == http.StatusNotFound:
		return Charge{}, "", ErrNoCharge
	case status != http.StatusOK || found.ID == "":
		return Charge{}, "", unclear(status)
	}
	return found.Charge, idempotent.RecordID(found.Metadata[MetadataRecord]), nil
}

// Find returns the charge that was made under a key, or [ErrNoCharge].
func (c *Client) Find(ctx context.Context, key string) (Charge, error) {
	var charges []Charge
	status, err := c.do(ctx, http.MethodGet, "/charges?idempotency_key="+url.QueryEscape(key), "", nil, &charges)
	switch {
	case err != nil:
		return Charge{}, err
	case status != http.StatusOK || charges == nil: // only a clear "no such charge" is evidence
		return Charge{}, unclear(status)
	case len(charges) == 0:
		return Charge{}, ErrNoCharge
	}
	return charges[0], nil
}

func unclear(status int) error {
	return fmt.Errorf("charge: the provider answered with status %d", status)
}

// do sends a request, and decodes a successful reply of at most 1 MB into v.
func (c *Client) do(ctx context.Context, method, path, key string, body []byte, v any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if key != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return 0, err
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return resp.StatusCode, nil
	case json.Unmarshal(data, v) != nil:
		return 0, errors.New("charge: invalid reply of the provider: not the expected JSON")
	}
	return resp.StatusCode, nil
}
