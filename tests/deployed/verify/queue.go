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

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// delivered is what became of a message.
type delivered struct {
	Kind     string
	Received int64   // for the first time, in milliseconds since 1970
	Times    []int64 // of its runs, likewise
	Cut      int     // of these runs, those whose invocation Lambda ended
	Dead     bool    // it is in the dead-letter queue
}

// slowPoller is how much later than its visibility time-out ends a message may be received.
const slowPoller = 2 * time.Minute

// emptied reports whether the queue has no messages any more, which only LocalStack knows
// at once.
func (w *world) emptied(ctx context.Context) (bool, error) {
	if !w.Local {
		return false, nil
	}
	out, err := w.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(w.outputs["Queue"]), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return false, err
	}
	for _, name := range []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
	} {
		if out.Attributes[string(name)] != "0" {
			return false, nil
		}
	}
	return true, nil
}

// batch sends messages of which some fail.
var batch = of(claim{
	name: "queue", expected: "only failed messages return, after the visibility time-out; one that always fails is dead", source: "docs/batch.md", local: true, waits: true,
}, func(ctx context.Context, w *world) (map[string]delivered, error) {
	if err := w.budget.spend(110); err != nil {
		return nil, err
	}
	// The process starts before the batch arrives, which so has the whole time-out.
	if err := w.ask(ctx, "Handler", wire.Request{Do: wire.Count}, nil); err != nil {
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
	end := time.Now().Add(mostReceive*visibility*time.Second + slowPoller)
	if w.Local {
		end = time.Now().Add(kit.Patience)
	}
	for last := false; !last && time.Now().Before(end); {
		var err error
		if last, err = w.emptied(ctx); err != nil {
			return nil, err
		}
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
			last = true
		}
	}
	get := func(key string) (map[string]dynamotypes.AttributeValue, error) {
		out, err := w.dynamodb.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(w.outputs["Items"]), Key: itemKey(key), ConsistentRead: aws.Bool(true)})
		if err != nil {
			return nil, err
		}
		return out.Item, nil
	}
	for id, d := range all {
		item, err := get(id)
		if err != nil {
			return nil, err
		}
		d.Received = number(item["received"])
		times, _ := item["times"].(*dynamotypes.AttributeValueMemberL)
		invocations, _ := item["invocations"].(*dynamotypes.AttributeValueMemberL)
		if times != nil && invocations != nil {
			for i, at := range times.Value {
				d.Times = append(d.Times, number(at))
				ended, err := get(invocations.Value[i].(*dynamotypes.AttributeValueMemberS).Value)
				if err != nil {
					return nil, err
				}
				if ended == nil {
					d.Cut++
				}
			}
		}
		all[id] = d
	}
	return all, nil
}, func(all map[string]delivered) (string, verdict) {
	runs, dead, cut, pause, ok := map[string]int{}, 0, 0, int64(0), true
	for _, d := range all {
		runs[d.Kind] += len(d.Times)
		if d.Dead {
			dead++
		}
		cut += d.Cut
		n := len(d.Times)
		switch d.Kind {
		case wire.Good: // a run that Lambda ended is repeated
			ok = ok && n > 0 && n-d.Cut <= 1 && !d.Dead
		case wire.Late:
			ok = ok && n == 2 && d.Received > 0 && !d.Dead
			if n == 2 {
				pause = d.Times[1] - d.Received
			}
		case wire.Bad:
			ok = ok && n == mostReceive && d.Dead
		}
	}
	ok = ok && pause >= visibility*1000 && runs[wire.Good] > 0 && runs[wire.Late] > 0 && runs[wire.Bad] > 0
	seen := fmt.Sprintf("%d messages: good ones ran %d times, the late one %d, %d ms after its receipt, the bad one %d, %d dead; Lambda ended %d runs",
		len(all), runs[wire.Good], runs[wire.Late], pause, runs[wire.Bad], dead, cut)
	return seen, when(ok)
})
