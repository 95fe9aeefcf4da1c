// SPDX-License-Identifier: Apache-2.0

package unstablekey

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"maps"
	"math/rand/v2"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/uuid"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

func keys(ctx context.Context, o provider.Order, m events.SQSMessage, parts map[string]string) []idempotent.Key {
	lc, _ := lambdacontext.FromContext(ctx)
	now := time.Now()
	joined := ""
	for name := range parts {
		joined += name
	}
	var names []string
	for name := range parts {
		names = append(names, name)
	}
	var sorted []string
	for name := range parts {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	return []idempotent.Key{
		{Operation: "o", Scope: "s", ID: uuid.NewString()},                                   // want `unstablekey: the key's ID comes from uuid.NewString`
		{Operation: "o", Scope: "s", ID: o.ID + "-" + strconv.FormatInt(now.UnixNano(), 10)}, // want `unstablekey: the key's ID comes from time.Now`
		{Operation: "o", Scope: "s", ID: fmt.Sprintf("%s-%d", o.ID, rand.Int())},             // want `unstablekey: .* rand.Int`
		{Operation: "o", Scope: "s", ID: lc.AwsRequestID},                                    // want `unstablekey: .* the Lambda request id`
		{Operation: "o", Scope: "s", ID: m.MessageId},                                        // want `unstablekey: .* an SQS message id`
		{Operation: "o", Scope: m.ReceiptHandle, ID: o.ID},                                   // want `unstablekey: the key's Scope comes from a receipt handle`
		{Operation: "o", Scope: "s", ID: joined},                                             // want `unstablekey: .* the order of a map`
		{Operation: "o", Scope: "s", ID: strings.Join(names, ",")},                           // want `unstablekey: .* the order of a map`
		{Operation: "o", Scope: "s", ID: strings.Join(slices.Collect(maps.Keys(parts)), "")}, // want `unstablekey: .* the order of a map`
		{Operation: "o", Scope: "s", ID: newID(o)},                                           // want `unstablekey: .* time.Now`
		{Operation: "o", Scope: "s", ID: provider.NewID()},                                   // want `unstablekey: .* uuid.NewString`
		{Operation: "o", Scope: "s", ID: uuid.Must(uuid.NewRandom()).String()},               // want `unstablekey: .* uuid.NewRandom`

		{Operation: "o", Scope: "s", ID: o.ID},
		{Operation: "o", Scope: "s", ID: uuid.Must(uuid.Parse(o.ID)).String()},
		{Operation: "o", Scope: "s", ID: strings.Join(sorted, ",")},
		{Operation: "o", Scope: "s", ID: strings.Join(slices.Sorted(maps.Keys(parts)), "")},
		{Operation: "o", Scope: "s", ID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(o.ID)).String()},
		{Operation: "report", Scope: "s", ID: time.Now().Format("2006-01-02")}, // one a day
		{Operation: "report", Scope: "s", ID: time.Now().Truncate(time.Hour).String()},
	}
}

func newID(o provider.Order) string { return o.ID + time.Now().String() }

func rules(guard *idempotent.Guard, h func(context.Context, provider.Order) error) {
	idempotent.KeyFrom("order", func(o provider.Order) (scope, id string) {
		return o.ID, uuid.New().String() // want `unstablekey: the key comes from uuid.New`
	})
	lambdabatch.SQS(guard, h, func(o *lambdabatch.Options) {
		o.ID = func(_ context.Context, m *lambdabatch.Message) (string, error) { // want `unstablekey: the key's ID comes from an SQS message id`
			return m.Event.(*events.SQSMessage).MessageId, nil
		}
	})
	lambdabatch.SQS(guard, h, func(o *lambdabatch.Options) { o.ID = lambdabatch.Field("/id") })
}

// other code may use random ids.
func other() string { return uuid.NewString() }
