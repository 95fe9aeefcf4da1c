// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// create returns the handler of POST /charges.
func (a *api) create() lambdahttp.JSON[Request, Charge] {
	return lambdahttp.JSON[Request, Charge]{Handle: a.charge, Respond: created}
}

// charge charges a customer. It runs behind the guard, once per key. Its error
// decides what happens to the key.
func (a *api) charge(ctx context.Context, request Request) (Charge, error) {
	charge, err := a.provider.Charge(ctx, idempotent.DownstreamKey(ctx), request)
	switch {
	case err == nil:
		return charge, nil
	case errors.Is(err, ErrDeclined):
		return charge, &lambdahttp.Problem{Status: http.StatusPaymentRequired, Code: "card_declined",
			Detail: "The customer's card was declined. Nothing was charged. To try another card, send a new request with a new key."}
	case errors.Is(err, ErrNotSent):
		return charge, idempotent.NotExecuted(errors.Join(err, &lambdahttp.Problem{Status: http.StatusServiceUnavailable, Code: "provider_unavailable",
			Detail: "The payment provider cannot be reached. Nothing was charged. Repeat the request with the same key."}))
	}
	unconfirmed := &lambdahttp.Problem{Status: http.StatusBadGateway, Code: "charge_unconfirmed",
		Detail: "The payment provider did not confirm the charge, so it is not known whether the customer was charged. The charge is not tried again until that is known. Repeat the request later, with the same key."}
	if ctx.Err() != nil {
		unconfirmed.Status = http.StatusGatewayTimeout
	}
	return charge, idempotent.Unknown(errors.Join(err, unconfirmed))
}

// created completes the response for a charge that was made.
func created(r *lambdahttp.Response, c Charge) {
	r.Status = http.StatusCreated
	r.Header.Set("Location", "/charges/"+c.ID)
}

// Evidence returns the evidence that a charge was made. It has the handler's own
// response, so a client cannot distinguish a charge that the provider's reply
// confirmed from one that its ledger confirmed later.
func Evidence(c Charge) (idempotent.Resolution, error) {
	return lambdahttp.JSON[Request, Charge]{Respond: created}.Resolved(c)
}

// Request is the body of a POST /charges.
type Request struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	Customer string `json:"customer"`
}

const (
	maxAmount   = 999_999_999_999
	maxCustomer = 255 // bytes

	example = `JSON like {"amount":4200,"currency":"usd","customer":"cus_1"}`
)

// UnmarshalJSON reads the body of a POST /charges. Its error names the field and
// the correction. Unlike encoding/json it compares names with case, because
// spelling must not decide what a customer pays.
func (r *Request) UnmarshalJSON(body []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return invalid("The body is not a JSON object. Send %s.", example)
	}
	for _, field := range []struct {
		name, rule string
		read       func(json.RawMessage) (valid bool)
	}{
		{"amount", fmt.Sprintf("a whole number from 1 to %d, in the currency's smallest unit: 4200 for 42.00 usd", maxAmount), r.readAmount},
		{"currency", `the three lower-case letters of a currency, for example "usd"`, r.readCurrency},
		{"customer", fmt.Sprintf(`the id of a customer, of 1 to %d bytes, for example "cus_1"`, maxCustomer), r.readCustomer},
	} {
		switch raw, ok := members[field.name]; {
		case !ok:
			return invalid("The field %q is missing. Send %s.", field.name, example)
		case !field.read(raw):
			return invalid("The field %q has to be %s.", field.name, field.rule)
		}
		delete(members, field.name)
	}
	for name := range members {
		return invalid("The field %.40q is unknown. Leave it out; a charge has amount, currency and customer.", name)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &lambdahttp.Problem{Status: http.StatusBadRequest, Code: "invalid_charge", Detail: fmt.Sprintf(format, args...)}
}

// readAmount reads a whole number in any spelling of JSON, exactly: 4200 and
// 4.2e3 are one amount, and there is no rounding to float64.
func (r *Request) readAmount(raw json.RawMessage) bool {
	text := string(raw)
	// Check the size first: 1e999999999 must not be expanded to its digits.
	if approx, err := strconv.ParseFloat(text, 64); err != nil || approx < 1 || approx > maxAmount || len(text) > 40 {
		return false
	}
	exact, ok := new(big.Rat).SetString(text)
	if !ok || !exact.IsInt() {
		return false
	}
	r.Amount = exact.Num().Int64() // it fits, because of its size
	return true
}

func (r *Request) readCurrency(raw json.RawMessage) bool {
	err := json.Unmarshal(raw, &r.Currency)
	return err == nil && len(r.Currency) == 3 && strings.Trim(r.Currency, "abcdefghijklmnopqrstuvwxyz") == ""
}

func (r *Request) readCustomer(raw json.RawMessage) bool {
	err := json.Unmarshal(raw, &r.Customer)
	return err == nil && r.Customer != "" && len(r.Customer) <= maxCustomer
}
