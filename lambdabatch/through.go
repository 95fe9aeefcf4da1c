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
// raw message delivery. ID, Fingerprint and Decode then get what the publisher sent.
// Pass it to a constructor.
func FromSNS(o *Options) {
	o.Unwrap = func(body []byte) ([]byte, error) {
		var notification struct {
			Type    string
			Message *string
		}
		if err := json.Unmarshal(body, &notification); err != nil || notification.Type != "Notification" || notification.Message == nil {
			return nil, errNotSNS
		}
		return []byte(*notification.Message), nil
	}
}

// FromS3 sets [Options.ID], [Options.Scope] and [Options.Fingerprint] for a queue to
// which S3 sends its events, as [S3] does for a function: the id is made of the kind
// of event, the object and its version, and the scope is the bucket. If the
// events come through an SNS topic, pass [FromSNS] too. The handler gets an
// [events.S3Event] with one record. S3's test event has no record, and fails.
func FromS3(o *Options) {
	o.ID = func(_ context.Context, m *Message) (string, error) {
		e, err := s3Event(m)
		if err != nil {
			return "", err
		}
		id, _, err := s3Work(e)
		return id, err
	}
	o.Scope = func(_ context.Context, m *Message) (string, error) {
		e, err := s3Event(m)
		if err != nil {
			return "", err
		}
		return e.Records[0].S3.Bucket.Name, nil
	}
	o.Fingerprint = func(m *Message) (idempotent.Fingerprint, error) {
		e, err := s3Event(m)
		if err != nil {
			return idempotent.Fingerprint{}, err
		}
		_, content, err := s3Work(e)
		if err != nil {
			return idempotent.Fingerprint{}, err
		}
		return idempotent.FingerprintOf(content)
	}
}

// s3Event returns the event in the body of a message, which has one record.
func s3Event(m *Message) (*events.S3Event, error) {
	var e events.S3Event
	if err := json.Unmarshal(m.Body, &e); err != nil || len(e.Records) != 1 {
		return nil, errOneRecord
	}
	return &e, nil
}
