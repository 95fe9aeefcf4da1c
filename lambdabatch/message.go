// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/once-lambda/once/internal/jsonpointer"
	"github.com/once-lambda/once/internal/logs"
)

// Message is the view of a message that the rules get, the same for every
// source. It must not be changed, and is safe for concurrent use.
type Message struct {
	// ItemID names the message in the response: SQS's message id, a stream's
	// sequence number (its eventID in a pipe), or topic, partition and offset of Kafka.
	ItemID string
	// EventID identifies the message in its source: the eventID of a stream's record,
	// because sequence numbers are unique in one shard only. For other sources it is
	// ItemID.
	EventID string
	// Source is the ARN of the queue, stream or cluster. Empty for a self-managed
	// Kafka cluster.
	Source string
	// Body is the message's payload: an SQS body, Kinesis data, the JSON of a
	// DynamoDB stream record, a Kafka value; or what Options.Unwrap made of it.
	Body []byte
	// Attributes are the string attributes (SQS) or headers (Kafka) that the sender
	// set.
	Attributes map[string]string
	// Lane identifies messages that must stay in order: an SQS message group, a
	// partition key, a Kafka partition. Empty if the order does not matter.
	Lane string
	// Event points to the source's own record, for example to an
	// events.SQSMessage.
	Event any

	sentBy string // the event's eventSource
}

// FromContext returns the message that a handler works on, from the handler's
// context. It returns false outside a handler of this package.
func FromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}

type messageKey struct{}

// IDFunc returns the id of the unit of work that a message stands for. An empty
// id fails the message with [idempotent.InvalidKeyError]; an error fails it too, and is
// a [*DecodeError] if no retry can read the message.
type IDFunc func(ctx context.Context, m *Message) (string, error)

// DecodeError reports a message whose content is wrong, so that no retry by the same code
// can read it. It is redelivered until the source gives up, unless [Options.HandOver] takes
// it. A function of [Options] that reads messages returns it for such a message; its other
// errors can pass.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string {
	if own, ok := errors.AsType[logs.Error](e.Err); ok {
		return own.Error()
	}
	text := "lambdabatch: the message cannot be decoded"
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](e.Err); ok { // its path can have keys of a map, which are content
		text += fmt.Sprintf(": a value is no %v", wrong.Type)
	}
	return text
}

// LogValue returns the text, which contains nothing of the message.
func (e *DecodeError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// Unwrap returns the decoder's error, whose text may contain parts of the
// message.
func (e *DecodeError) Unwrap() error { return e.Err }

// Field returns the [IDFunc] that reads a field of a JSON body, named by a JSON
// Pointer (RFC 6901) such as "/order/id". The value must be a string or a
// number. Two spellings of a number are one id, as in a fingerprint: 100, 100.0
// and 1e2 are "100", and 9007199254740992 and 9007199254740993 are two ids. A body
// with a name of the pointer in another letter case is refused, because encoding/json would
// read it as that name. Field panics if the pointer is invalid.
func Field(pointer string) IDFunc {
	path, err := jsonpointer.Parse(pointer)
	if err != nil {
		panic(fmt.Sprintf("lambdabatch: Field: invalid JSON Pointer %q: %v; use one such as %q", pointer, err, "/order_id"))
	}
	names := jsonpointer.NamesIn([]jsonpointer.Pointer{path})
	unreadable := func(why string, args ...any) error {
		return &DecodeError{logs.Error("lambdabatch: the body " + fmt.Sprintf(why, args...))}
	}
	return func(_ context.Context, m *Message) (string, error) {
		if !json.Valid(m.Body) {
			return "", unreadable("is not JSON, so Options.ID finds no field")
		}
		if name, ok := names.Miscased(m.Body); ok {
			return "", unreadable("has a member named like %q in another letter case; write it %[1]q", name)
		}
		value, _ := path.Lookup(m.Body)
		if id, _ := jsonpointer.Text(value); id != "" {
			return id, nil
		}
		return "", unreadable("has no string or number at %q, which Field names", pointer)
	}
}

// Attribute returns the [IDFunc] that reads a message attribute.
func Attribute(name string) IDFunc {
	if name == "" {
		panic("lambdabatch: Attribute: the name of the message attribute is empty")
	}
	return func(_ context.Context, m *Message) (string, error) { return m.Attributes[name], nil }
}

// ItemID is the [IDFunc] for the source's own id of the message, [Message.EventID].
// It is the default for streams, whose ids are permanent. If a sender retries,
// or a message is redriven from a dead-letter queue, the same order gets a new
// message id. So a queue whose messages have a business field should use that, and
// [Options.NoRedrive] is required with ItemID.
func ItemID(_ context.Context, m *Message) (string, error) { return m.EventID, nil }

// isItemID reports whether f is [ItemID]. It does not find functions that call
// ItemID.
func isItemID(f IDFunc) bool {
	return reflect.ValueOf(f).Pointer() == reflect.ValueOf(ItemID).Pointer()
}

var errItemID error = logs.Error("lambdabatch: Options.ID returns the message id, and a message that is redriven from a dead-letter queue has a new one and would run again;" +
	" use a field of the body or an attribute, or set Options.NoRedrive if messages are never redriven")
