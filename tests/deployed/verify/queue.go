// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// delivered is what became of a message.
type delivered struct {
	Kind  string
	Times []int64 // of its runs, in milliseconds since 1970
	Dead  bool    // it is in the dead-letter queue
}

// slowPoller is how much later than its visibility time-out ends a message may be received.
const slowPoller = 2 * time.Minute

// batch sends messages of which some fail.
var batch = of(claim{
	name: "queue", expected: "only failed messages return, after the visibility time-out; one that always fails is dead", source: "docs/batch.md", local: true, waits: true,
}, func(ctx context.Context, w *world) (map[string]delivered, error) {
	if err := w.budget.spend(100); err != nil {
		return nil, err
	}
	all := map[string]delivered{}
	send := &sqs.SendMessageBatchInput{QueueUrl: aws.String(w.outputs["Queue"])}
	for i, kind := range []string{wire.Good, wire.Good, wire.Good, wire.Late, wire.Good, wire.Bad, wire.Good, wire.Good} {
		id := rand.Text()
		all[id] = delivered{Kind: kind}
		body, err := json.Marshal(wire.Message{ID: id, Kind: kind})
		if err != nil {
			return nil, err
		}
		send.Entries = append(send.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(body))})
	}
	if out, err := w.sqs.SendMessageBatch(ctx, send); err != nil || len(out.Failed) > 0 {
		return nil, errors.Join(err, fmt.Errorf("queue: %d messages were not sent", len(out.Failed)))
	}
	// The dead message arrives after two visibility time-outs, and later if the poller of
	// the queue is slow. Without it, the others are known by then, too.
	for end := time.Now().Add(mostReceive*visibility*time.Second + slowPoller); time.Now().Before(end); {
		out, err := w.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String(w.outputs["Dead"]), WaitTimeSeconds: 5})
		if err != nil {
			return nil, err
		}
		for _, m := range out.Messages {
			var body wire.Message
			if err := json.Unmarshal([]byte(*m.Body), &body); err != nil {
				return nil, err
			}
			all[body.ID] = delivered{Kind: body.Kind, Dead: true}
			end = time.Now()
		}
	}
	for id, d := range all {
		out, err := w.dynamodb.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(w.outputs["Items"]), Key: itemKey(id), ConsistentRead: aws.Bool(true)})
		if err != nil {
			return nil, err
		}
		times, _ := out.Item["times"].(*dynamotypes.AttributeValueMemberL)
		if times != nil {
			for _, at := range times.Value {
				d.Times = append(d.Times, number(at))
			}
		}
		all[id] = d
	}
	return all, nil
}, func(all map[string]delivered) (string, verdict) {
	runs, dead, pause, ok := map[string]int{}, 0, int64(0), true
	for _, d := range all {
		runs[d.Kind] += len(d.Times)
		if d.Dead {
			dead++
		}
		n := len(d.Times)
		switch d.Kind {
		case wire.Good:
			ok = ok && n == 1 && !d.Dead
		case wire.Late:
			ok = ok && n == 2 && !d.Dead
			if n == 2 {
				pause = d.Times[1] - d.Times[0]
			}
		case wire.Bad:
			ok = ok && n == mostReceive && d.Dead
		}
	}
	const early = 1000 // milliseconds between receipt and run that may differ
	ok = ok && pause >= visibility*1000-early && runs[wire.Good] > 0 && runs[wire.Late] > 0 && runs[wire.Bad] > 0
	seen := fmt.Sprintf("%d messages: good ones ran %d times, the late one %d, %d ms later, the bad one %d, %d dead",
		len(all), runs[wire.Good], runs[wire.Late], pause, runs[wire.Bad], dead)
	return seen, when(ok)
})
