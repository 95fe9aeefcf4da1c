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

// The known results of a call to the provider. After any other error of
// [Client.Charge], it is unknown whether the customer was charged.
var (
	// ErrDeclined: the provider declined the card, and nothing was charged.
	ErrDeclined = errors.New("charge: the card was declined")
	// ErrNotSent: there was no connection to the provider, so nothing can have
	// been charged.
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
	return &Client{
		base: strings.TrimSuffix(base, "/"),
		http: &http.Client{
			// A redirect could send the charge to an unknown host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// MetadataRecord is the name of the record's id in the metadata of a charge.
const MetadataRecord = "record"

// maxReply limits how much of the provider's reply is read, in bytes.
const maxReply = 1 << 20

// Charge charges the customer, once per key: for a repeated key the provider
// returns the charge that it made the first time. The record's id is sent as
// metadata, so that the provider's events can name the record.
func (c *Client) Charge(ctx context.Context, key string, record idempotent.RecordID, r Request) (Charge, error) {
	body, err := json.Marshal(struct {
		Request
		Metadata map[string]string `json:"metadata"`
	}{r, map[string]string{MetadataRecord: string(record)}})
	if err != nil {
		return Charge{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}

	// Without a connection, nothing can have happened. That is more reliable
	// than any kind of error.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/charges", bytes.NewReader(body))
	if err != nil {
		return Charge{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)

	var charge Charge
	status, err := c.do(req, &charge)
	switch {
	case err != nil && !connected.Load():
		return Charge{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	case err != nil:
		return Charge{}, err
	case status == http.StatusPaymentRequired:
		return Charge{}, ErrDeclined
	case status != http.StatusCreated || charge.ID == "":
		return Charge{}, fmt.Errorf("charge: the provider answered with status %d", status)
	}
	return charge, nil
}

// Get returns a charge by its id, or [ErrNoCharge].
func (c *Client) Get(ctx context.Context, id string) (Charge, error) {
	charge, _, err := c.Booked(ctx, id)
	return charge, err
}

// Booked is Get, and also returns the id of the record that the charge was made
// for. The id is empty if the charge names no record.
func (c *Client) Booked(ctx context.Context, id string) (Charge, idempotent.RecordID, error) {
	var booked struct {
		Charge
		Metadata map[string]string `json:"metadata"`
	}
	status, err := c.get(ctx, "/charges/"+url.PathEscape(id), &booked)
	switch {
	case err != nil:
		return Charge{}, "", err
	case status == http.StatusNotFound:
		return Charge{}, "", ErrNoCharge
	case status != http.StatusOK || booked.ID == "":
		return Charge{}, "", fmt.Errorf("charge: the provider answered with status %d", status)
	}
	return booked.Charge, idempotent.RecordID(booked.Metadata[MetadataRecord]), nil
}

// Find returns the charge that was made under a key, or [ErrNoCharge].
func (c *Client) Find(ctx context.Context, key string) (Charge, error) {
	var charges []Charge
	status, err := c.get(ctx, "/charges?idempotency_key="+url.QueryEscape(key), &charges)
	switch {
	case err != nil:
		return Charge{}, err
	case status != http.StatusOK || charges == nil:
		// Only a clear "no such charge" is evidence.
		return Charge{}, fmt.Errorf("charge: the provider answered with status %d", status)
	case len(charges) == 0:
		return Charge{}, ErrNoCharge
	}
	return charges[0], nil
}

func (c *Client) get(ctx context.Context, path string, v any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return 0, err
	}
	return c.do(req, v)
}

// do sends req, reads the reply, and decodes it into v if it is a success.
func (c *Client) do(req *http.Request, v any) (status int, err error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return 0, errors.New("charge: invalid reply of the provider: not the expected JSON")
	}
	return resp.StatusCode, nil
}
