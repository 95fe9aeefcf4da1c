package lambdabatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/once-lambda/once/internal/canonical"
)

// Record is the view of a message that the rules get, the same for every
// source. It must not be changed, and is safe for concurrent use.
type Record struct {
	// ItemID names the message in the response: SQS's message id, a stream's
	// sequence number.
	ItemID string
	// Source is the ARN of the queue or stream.
	Source string
	// Body is the message's payload: an SQS body, Kinesis data, the JSON of a
	// DynamoDB stream record.
	Body []byte
	// Attributes are the string attributes that the sender set (SQS).
	Attributes map[string]string
	// Lane identifies messages that must stay in order: an SQS message group, a
	// partition key. Empty if the order does not matter.
	Lane string
	// Event points to the source's own record, for example to an
	// events.SQSMessage.
	Event any
}

// IDFunc returns the id of the unit of work that a message stands for. An empty
// id fails the message with [idempotent.NoKeyError]; an error fails it too.
type IDFunc func(ctx context.Context, r *Record) (string, error)

// Field returns the [IDFunc] that reads a field of a JSON body, named by a JSON
// pointer (RFC 6901) such as "/order/id". The value must be a string or a
// number. Two spellings of a number are one id, as in a fingerprint: 100, 100.0
// and 1e2 are "100", and 9007199254740992 and 9007199254740993 are two ids.
func Field(pointer string) IDFunc {
	if !strings.HasPrefix(pointer, "/") {
		panic(fmt.Sprintf("lambdabatch: Field: invalid JSON pointer %[2]q; use one such as %[1]q", "/order_id", pointer))
	}
	path := strings.Split(pointer[1:], "/")
	for i, p := range path {
		path[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return func(_ context.Context, r *Record) (string, error) { return field(r.Body, path) }
}

var errNoField = errors.New("lambdabatch: the body has no string or number in the field of Options.ID")

func field(doc json.RawMessage, path []string) (string, error) {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) == nil {
			doc = object[name] // nil if missing: then the next read fails
			continue
		}
		var array []json.RawMessage
		i, err := strconv.Atoi(name)
		if err != nil || json.Unmarshal(doc, &array) != nil || i < 0 || i >= len(array) {
			return "", errNoField
		}
		doc = array[i]
	}
	form, err := canonical.JSON(doc)
	if err != nil {
		return "", errNoField
	}
	var text string
	if json.Unmarshal(form, &text) == nil && text != "" {
		return text, nil
	}
	var number json.Number
	if json.Unmarshal(form, &number) == nil && number != "" {
		return number.String(), nil
	}
	return "", errNoField
}

// Attribute returns the [IDFunc] that reads a message attribute.
func Attribute(name string) IDFunc {
	if name == "" {
		panic("lambdabatch: Attribute: the name of the message attribute is empty")
	}
	return func(_ context.Context, r *Record) (string, error) { return r.Attributes[name], nil }
}

// ItemID is the [IDFunc] for the source's own id of the message. It is the
// default for streams, whose sequence numbers are permanent. For a queue prefer
// a business field: if a sender retries, or a message is redriven from a
// dead-letter queue, the same order gets a new message id.
func ItemID(_ context.Context, r *Record) (string, error) { return r.ItemID, nil }
