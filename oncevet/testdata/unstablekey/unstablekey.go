// SPDX-License-Identifier: Apache-2.0

package unstablekey

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"io"
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

func newID(o provider.Order) string {
	if o.ID != "" {
		return o.ID + time.Now().String()
	}
	return ""
}

func first(e events.SQSEvent) events.SQSMessage { return e.Records[0] }

var (
	input io.Reader = strings.NewReader("")
	seed  [16]byte
)

func random(e events.SQSEvent, n int) ([]idempotent.Key, error) {
	d := make([]byte, n)
	crand.Read(d)
	sum := sha256.Sum256([]byte(uuid.NewString()))
	parts := [2]string{"", uuid.NewString()}
	id := ""
	func() { id = uuid.NewString() }()
	var a, b, c [16]byte
	crand.Read(a[:])
	if _, err := io.ReadFull(crand.Reader, b[:]); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(input, c[:]); err != nil {
		return nil, err
	}
	s := seed[:]
	crand.Read(s)
	return []idempotent.Key{
		{Operation: "o", Scope: "s", ID: hex.EncodeToString(s)},    // want `unstablekey: .* rand.Read`
		{Operation: "o", Scope: "s", ID: hex.EncodeToString(a[:])}, // want `unstablekey: .* rand.Read`
		{Operation: "o", Scope: "s", ID: hex.EncodeToString(b[:])}, // want `unstablekey: .* crypto/rand.Reader`
		{Operation: "o", Scope: "s", ID: hex.EncodeToString(c[:])},
		{Operation: "o", Scope: "s", ID: hex.EncodeToString(d)},      // want `unstablekey: .* rand.Read`
		{Operation: "o", Scope: "s", ID: hex.EncodeToString(sum[:])}, // want `unstablekey: .* uuid.NewString`
		{Operation: "o", Scope: "s", ID: parts[1]},                   // want `unstablekey: .* uuid.NewString`
		{Operation: "o", Scope: "s", ID: first(e).MessageId},         // want `unstablekey: .* an SQS message id`
		{Operation: "o", Scope: "s", ID: first(e).Body},
		{Operation: "o", Scope: "s", ID: id},                                                        // want `unstablekey: .* uuid.NewString`
		{Operation: "o", Scope: "s", ID: fmt.Sprint(time.Since(epoch))},                             // want `unstablekey: .* time.Since`
		{Operation: "o", Scope: "s", ID: fmt.Sprint(time.Until(epoch))},                             // want `unstablekey: .* time.Until`
		{Operation: "o", Scope: "s", ID: strings.Join(append([]string{"x"}, uuid.NewString()), "")}, // want `unstablekey: .* uuid.NewString`
		{Operation: "o", Scope: "s", ID: uuid.NewString() + time.Now().String()},                    // want `unstablekey: .* uuid.NewString`
		{Operation: "o", Scope: "s", ID: strconv.FormatInt(time.Now().Unix()/86400, 10)},            // one a day
	}, nil
}

func shorten(s string) string         { return s[:8] }
func size(s string) int               { return len(s) }
func label(time.Time) string          { return "x" }
func split(s string) (string, string) { return s[:1], s[1:] }

func computed(o provider.Order, layout string, parts map[string]string) []idempotent.Key {
	letters, reversed, joined := "", "", ""
	for _, r := range o.ID {
		letters += string(r)
		reversed = string(r) + reversed
	}
	for range 2 {
		head, _ := split(o.ID)
		joined += head
	}
	return []idempotent.Key{
		newKey("s", time.Now().Format(time.RFC3339)),                      // want `unstablekey: .* time.Now`
		newKey("s", time.Now().Format(layout)),                            // want `unstablekey: .* time.Now`
		newKey("s", strings.Join(slices.Collect(maps.Values(parts)), "")), // want `unstablekey: .* the order of a map`
		newKey("s", fmt.Sprint(maps.All(parts))),                          // want `unstablekey: .* the order of a map`
		newKey("s", shorten(uuid.NewString())),                            // want `unstablekey: .* uuid.NewString`
		newKey("s", html.EscapeString(uuid.NewString())),                  // want `unstablekey: .* uuid.NewString`
		newKey("s", time.Now().Round(time.Hour).String()),
		newKey("s", strconv.Itoa(size(uuid.NewString()))),
		newKey("s", strconv.Itoa(len(uuid.NewString()))),
		newKey("s", label(time.Now())),
		newKey("s", strings.Join(append([]string{"x"}, o.ID), "")),
		newKey("s", letters),
		newKey("s", reversed),
		newKey("s", joined),
	}
}

func eachPart(o provider.Order, parts map[string]string) (keys []idempotent.Key) {
	reversed, letters := "", ""
	for r := range map[rune]bool{'a': true, 'b': true} {
		letters += string(r)
	}
	for name := range parts {
		keys = append(keys, newKey(o.ID, name+"-"+o.ID), newKey(o.ID, o.ID+name))
		reversed = name + reversed
	}
	var twice, sorted []string
	for range 2 {
		for name := range parts {
			twice = append(twice, name)
			sorted = append(sorted, name)
		}
	}
	slices.Sort(sorted)
	return append(keys,
		newKey(o.ID, letters),                  // want `unstablekey: .* the order of a map`
		newKey(o.ID, reversed),                 // want `unstablekey: .* the order of a map`
		newKey(o.ID, strings.Join(twice, ",")), // want `unstablekey: .* the order of a map`
		newKey(o.ID, strings.Join(sorted, ",")),
	)
}

var epoch time.Time

var last struct{ id string }

func note(id string) { last.id = id }

func newKey(scope, id string) idempotent.Key {
	return idempotent.Key{Operation: "o", Scope: scope, ID: id}
}

type orderID string

func (id orderID) key() idempotent.Key { return newKey("acme", string(id)) }

func acmeKey(id string) idempotent.Key { return newKey("acme", id) }

func through(o provider.Order) []idempotent.Key {
	note(uuid.NewString())
	byID, random, format := orderID(o.ID).key, orderID(uuid.NewString()).key, time.Now().Format
	return []idempotent.Key{
		newKey("acme", uuid.NewString()), // want `unstablekey: the key's ID comes from uuid`
		acmeKey(uuid.NewString()),        // want `unstablekey: the key's ID comes from uuid`
		acmeKey(o.ID),
		byID(),
		orderID(uuid.NewString()).key(),      // want `unstablekey: the key's ID comes from uuid`
		random(),                             // want `unstablekey: the key's ID comes from uuid`
		newKey("acme", format(time.RFC3339)), // want `unstablekey: .* time.Now`
	}
}

func rules(guard *idempotent.Guard, h func(context.Context, provider.Order) error) {
	idempotent.KeyFrom("order", func(o provider.Order) (scope, id string) {
		return o.ID, uuid.New().String() // want `unstablekey: the key comes from uuid.New`
	})
	lambdabatch.SQS(guard, h, func(o *lambdabatch.Options) {
		o.ID = func(_ context.Context, m *lambdabatch.Message) (string, error) { // want `unstablekey: the key's ID comes from an SQS message id`
			return m.Event.(*events.SQSMessage).MessageId, nil
		}
	})
	lambdabatch.SQS(guard, h, func(o *lambdabatch.Options) {
		o.ID = lambdabatch.Field("/id")
		o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return "acme", nil }
		o.Unwrap = func(context.Context, *lambdabatch.Message) error {
			return fmt.Errorf("no body at %s", time.Now())
		}
	})
	idempotent.KeyFrom("order", func(o provider.Order) (scope, id string) {
		defer func() { recover() }()
		id = uuid.NewString()
		return o.ID, id // want `unstablekey: the key comes from uuid.NewString`
	})
	idempotent.WholePayload("order", func(provider.Order) string {
		return uuid.NewString() // want `unstablekey: the key comes from uuid`
	})
}

func variables(o provider.Order) []idempotent.Key {
	stable, fresh := o.ID, ""
	func() { fresh = uuid.NewString() + stable }()
	var box struct{ stable, fresh string }
	box.stable, box.fresh = o.ID, uuid.NewString()
	return []idempotent.Key{
		newKey("s", stable),
		newKey("s", fresh), // want `unstablekey: .* uuid.NewString`
		newKey("s", box.stable),
		newKey("s", box.fresh), // want `unstablekey: .* uuid.NewString`
		func() idempotent.Key { return newKey("s", stable) }(),
		func() idempotent.Key { return newKey("s", fresh) }(),     // want `unstablekey: .* uuid.NewString`
		func() idempotent.Key { return newKey("s", box.fresh) }(), // want `unstablekey: .* uuid.NewString`
		func(id string) idempotent.Key { return newKey(o.ID, id) }("order"),
		func(id string) idempotent.Key { return newKey(o.ID, id) }(uuid.NewString()), // want `unstablekey: .* uuid.NewString`
	}
}

// unreachable has a literal that no instruction makes.
func unreachable(o provider.Order) idempotent.Key {
	panic(o)
	return func() idempotent.Key { return newKey("s", o.ID) }()
}

func _() {}

// other code may use random ids.
func other() provider.Order { return provider.Order{ID: uuid.NewString()} }
