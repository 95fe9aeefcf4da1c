// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
)

var errNotSNS error = &DecodeError{logs.Error("lambdabatch: the body is not a notification of SNS; switch raw message delivery of the subscription off, or do not use FromSNS")}

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
// which S3 sends its events, directly or through EventBridge, as [S3] and [EventBridge] do
// for a function: the id is made of the object, and the scope is the bucket. If the events
// come through an SNS topic, pass [FromSNS] too. The handler gets an [events.S3Event] with
// one record, or an [events.EventBridgeEvent]; FromS3 sets [Options.Decode], which refuses
// the other form. S3's test event has no record, and fails.
func FromS3(o *Options) {
	key := func(m *Message) (idempotent.Key, error) {
		var e struct { // has the members of both forms
			events.S3Event
			events.EventBridgeEvent
		}
		switch err := json.Unmarshal(m.Body, &e); {
		case err != nil:
			return idempotent.Key{}, &DecodeError{errOneRecord}
		case e.Source == s3Source:
			return s3Detail(&e.EventBridgeEvent)
		case len(e.Records) != 1:
			return idempotent.Key{}, &DecodeError{errOneRecord}
		}
		return s3Key(&e.S3Event)
	}
	o.Decode = func(ctx context.Context, body []byte, v any) error {
		err := decodeJSON(ctx, body, v)
		s3, ok := v.(*events.S3Event)
		bridge, through := v.(*events.EventBridgeEvent)
		if err == nil && (ok && len(s3.Records) == 0 || through && bridge.Source == "") {
			return errOtherForm
		}
		return err
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

var errOtherForm error = logs.Error("lambdabatch: FromS3: the event has another form than the handler takes: an events.S3Event comes from S3 directly, and an events.EventBridgeEvent through EventBridge")
