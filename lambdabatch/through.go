// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
)

var errNotSNS error = logs.Error("lambdabatch: the body is not a notification of SNS; switch raw message delivery of the subscription off, or do not use FromSNS")

// FromSNS sets [Options.Unwrap] for a queue that subscribes to an SNS topic without
// raw message delivery. ID, Fingerprint and Decode then get what the publisher sent,
// and [Message.Attributes] are the publisher's of the types String and Number. Pass it
// to a constructor.
func FromSNS(o *Options) {
	o.Unwrap = func(_ context.Context, m *Message) error {
		var notification struct {
			Type              string
			Message           *string
			MessageAttributes map[string]struct{ Type, Value string }
		}
		if err := json.Unmarshal(m.Body, &notification); err != nil || notification.Type != "Notification" || notification.Message == nil {
			return errNotSNS
		}
		m.Body, m.Attributes = []byte(*notification.Message), make(map[string]string, len(notification.MessageAttributes))
		for name, a := range notification.MessageAttributes {
			if a.Type != "Binary" {
				m.Attributes[name] = a.Value
			}
		}
		return nil
	}
}

// FromS3 sets [Options.ID], [Options.Scope] and [Options.Fingerprint] for a queue to
// which S3 sends its events, as [S3] does for a function: it makes the id, and the
// scope is the bucket. If the events come through an SNS topic, pass [FromSNS] too.
// The handler gets an [events.S3Event] with one record. S3's test event has no record,
// and fails.
func FromS3(o *Options) {
	key := func(m *Message) (idempotent.Key, error) {
		var e events.S3Event
		if err := json.Unmarshal(m.Body, &e); err != nil {
			return idempotent.Key{}, errOneRecord
		}
		return s3Key(&e)
	}
	o.ID = func(_ context.Context, m *Message) (string, error) {
		k, err := key(m)
		return k.ID, err
	}
	o.Scope = func(_ context.Context, m *Message) (string, error) {
		k, err := key(m)
		return k.Scope, err
	}
	o.Fingerprint = func(_ context.Context, m *Message) (idempotent.Fingerprint, error) {
		k, err := key(m)
		return k.Fingerprint, err
	}
}
