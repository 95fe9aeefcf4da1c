// SPDX-License-Identifier: Apache-2.0

// Package payment is the common part of two handlers, one with and one without
// the toolkit.
package payment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
)

// Request and Charge are the bodies of requests and responses.
type (
	Request struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		Customer string `json:"customer"`
	}
	Charge struct {
		ID string `json:"id"`
	}
)

// Parse reads the body of a request.
func Parse(body string) (r Request, err error) {
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return r, err
	}
	if r.Amount <= 0 || r.Currency == "" || r.Customer == "" {
		return r, errors.New("payment: amount, currency and customer are required")
	}
	return r, nil
}

// Do charges at the provider, under a key with which it charges only once.
func Do(ctx context.Context, key string, r Request) (c Charge, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return c, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL")+"/charges", bytes.NewReader(body))
	if err != nil {
		return c, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return c, errors.New("payment: the provider answered " + resp.Status)
	}
	return c, json.NewDecoder(resp.Body).Decode(&c)
}
