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

// Charge is what became of a charge.
type Charge struct {
	ID       string `json:"id,omitempty"`
	Declined bool   `json:"declined,omitempty"`
}

// Payments charges customers. It honours the key: a charge that it has made
// under it is the answer to a second one. That is what makes the step safe when
// the process dies between the charge and the record of it.
type Payments interface {
	Charge(ctx context.Context, key, customer string, amount int) (Charge, error)
}

// Provider is a payment provider at an address, which takes a POST of the charge
// to /charges and answers 201, or 402 to a customer who cannot pay.
type Provider string

// NewProvider returns the provider at an address such as
// "https://pay.example.com".
func NewProvider(address string) (Provider, error) {
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		return "", errors.New(`orders: the provider's address has to be a URL like "https://pay.example.com"`)
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
			return c, errors.New("orders: the provider's reply is not the JSON it should be")
		}
		return c, nil
	}
	return c, fmt.Errorf("orders: the provider answered with status %d", resp.StatusCode)
}
