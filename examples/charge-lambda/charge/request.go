// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// Request is the body of a POST /charges.
type Request struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	Customer string `json:"customer"`
}

const (
	maxAmount   = 999_999_999_999
	maxCustomer = 255 // bytes
)

// parseRequest reads the body of a POST /charges. The error's text is for the
// client: it names the field and the correction.
func parseRequest(ev events.APIGatewayV2HTTPRequest) (r Request, err error) {
	body := []byte(ev.Body)
	if ev.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(ev.Body); err != nil {
			return r, errNoObject
		}
	}
	members, err := parseObject(body)
	if err != nil {
		return r, err
	}
	for _, f := range []struct {
		name string
		read func(json.RawMessage) error
	}{
		{"amount", r.readAmount},
		{"currency", r.readCurrency},
		{"customer", r.readCustomer},
	} {
		raw, ok := members[f.name]
		if !ok {
			return r, invalid("The field %q is missing. Send %s.", f.name, example)
		}
		if err := f.read(raw); err != nil {
			return r, err
		}
		delete(members, f.name)
	}
	for name := range members {
		return r, invalid("The field %.40q is unknown. Leave it out; a charge has amount, currency and customer.", name)
	}
	return r, nil
}

// invalidError describes an invalid request, in words for the client.
type invalidError struct{ detail string }

func (e *invalidError) Error() string { return e.detail }

func invalid(format string, args ...any) error {
	return &invalidError{fmt.Sprintf(format, args...)}
}

const example = `JSON like {"amount":4200,"currency":"usd","customer":"cus_1"}`

var errNoObject = invalid("The body is not a JSON object. Send %s.", example)

// parseObject returns the members of a JSON object. Unlike encoding/json, it
// refuses duplicate names and compares them with case, because neither may
// decide what a customer pays.
func parseObject(body []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if start, err := d.Token(); err != nil || start != json.Delim('{') || !utf8.Valid(body) {
		return nil, errNoObject
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return nil, errNoObject
		}
		if _, twice := members[name]; twice {
			return nil, invalid("The field %.40q is there twice. Send it once.", name)
		}
		members[name] = value
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, errNoObject
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNoObject
	}
	return members, nil
}

// readAmount reads a whole number in any spelling of JSON, exactly: 4200 and
// 4.2e3 are one amount, and there is no rounding to float64.
func (r *Request) readAmount(raw json.RawMessage) error {
	bad := invalid("The field \"amount\" has to be a whole number from 1 to %d, in the currency's smallest unit: 4200 for 42.00 usd.", maxAmount)
	text := string(raw)
	// Check the size first, so that 1e999999999 is never expanded to its
	// digits.
	if approx, err := strconv.ParseFloat(text, 64); err != nil || approx < 1 || approx > maxAmount || len(text) > 40 {
		return bad
	}
	exact, ok := new(big.Rat).SetString(text)
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return bad
	}
	r.Amount = exact.Num().Int64()
	return nil
}

func (r *Request) readCurrency(raw json.RawMessage) error {
	err := json.Unmarshal(raw, &r.Currency)
	if err != nil || len(r.Currency) != 3 || strings.Trim(r.Currency, "abcdefghijklmnopqrstuvwxyz") != "" {
		return invalid(`The field "currency" has to be the three lower-case letters of a currency, for example "usd".`)
	}
	return nil
}

func (r *Request) readCustomer(raw json.RawMessage) error {
	err := json.Unmarshal(raw, &r.Customer)
	if err != nil || r.Customer == "" || len(r.Customer) > maxCustomer {
		return invalid("The field \"customer\" has to be the id of a customer, of 1 to %d bytes, for example \"cus_1\".", maxCustomer)
	}
	return nil
}
