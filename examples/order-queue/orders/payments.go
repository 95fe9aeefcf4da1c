// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Charge is the result of a charge.
type Charge struct {
	ID       string `json:"id,omitempty"`
	Declined bool   `json:"declined,omitempty"`
}

// Payments charges customers. It must honour the key: for a repeated key it
// returns the charge that it made the first time. So the step is safe if the
// process dies between the charge and the record of it.
type Payments interface {
	Charge(ctx context.Context, key, customer string, amount int) (Charge, error)
}

// Provider is the address of a payment provider. It accepts a POST of the charge
// to /charges and answers 201, or 402 if the customer cannot pay.
type Provider string

// NewProvider returns the provider at an address such as
// "https://pay.example.com".
func NewProvider(address string) (Provider, error) {
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		return "", errors.New(`orders: invalid provider address: must be a URL like "https://pay.example.com"`)
	}
	return Provider(strings.TrimSuffix(address, "/")), nil
}

// Charge charges the customer.
func (p Provider) Charge(ctx context.Context, key, customer string, amount int) (c Charge, err error) {
	body, err := json.Marshal(map[string]any{"customer": customer, "amount": amount, "currency": "eur"})
	if err != nil {
		return c, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p)+"/charges", bytes.NewReader(body))
	if err != nil {
		return c, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPaymentRequired:
		return Charge{Declined: true}, nil
	case http.StatusCreated:
		if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || c.ID == "" {
			return c, errors.New("orders: invalid reply of the provider: not the expected JSON")
		}
		return c, nil
	}
	return c, fmt.Errorf("orders: the provider answered with status %d", resp.StatusCode)
}
