// SPDX-License-Identifier: Apache-2.0

package powertools_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/dynamostore/powertools"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

const table = "once"

var (
	began = time.UnixMilli(1_800_000_000_500)
	key   = idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1"}
	// The items of the key, with the MD5 of "order-1" and its quotes that md5sum prints.
	inPython     = "charge.app.handler#729040816f7330c4cb31f54a56f59a7b"
	inTypeScript = "charge.app.handler#cpBAgW9zMMTLMfVKVvWaew=="
)

type item = map[string]types.AttributeValue

func s(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
func n(v int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(v, 10)}
}

// shared are the options for a table that both use.
func shared(o *powertools.Options) {
	o.KeyAttr, o.ExpiryAttr = "pk", "ttl"
	o.Now = func() time.Time { return began }
}

func ask(t *testing.T, db powertools.Client, l powertools.Language, optFns ...func(*powertools.Options)) (any, bool, error) {
	t.Helper()
	asked, err := powertools.Predecessor(db, table, l, "charge.app.handler", append([]func(*powertools.Options){shared}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return asked(t.Context(), key)
}

func put(t *testing.T, db *dynamotest.DB, it item) {
	t.Helper()
	if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: it}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, db *dynamotest.DB, pk string) item {
	t.Helper()
	out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: item{"pk": s(pk)}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// The item of a key that Powertools has not begun keeps Powertools out: it is in
// progress, has no in-progress expiry, and names the record.
func TestExcludes(t *testing.T) {
	t.Parallel()
	db := dynamotest.New(table)
	for range 2 { // the second time it is its own
		if _, found, err := ask(t, db, powertools.Python); found || err != nil {
			t.Fatal(found, err)
		}
	}
	want := item{"pk": s(inPython), "status": s("INPROGRESS"), "ttl": n(began.Add(30 * 24 * time.Hour).Unix()), "once": s(string(key.RecordID()))}
	if got := get(t, db, inPython); fmt.Sprint(plain(got)) != fmt.Sprint(plain(want)) {
		t.Errorf("got %v, want %v", plain(got), plain(want))
	}
	if _, _, err := ask(t, db, powertools.TypeScript, func(o *powertools.Options) {
		o.Validation = func(context.Context, idempotent.Key) (any, error) { return 4200, nil }
		o.Exclude = time.Second // the shortest
	}); err != nil {
		t.Fatal(err)
	}
	got := plain(get(t, db, inTypeScript))
	if got["validation"] != "htuoZ1TArZOZehH6lH2Xsg==" || got["ttl"] != fmt.Sprint(began.Add(time.Second).Unix()) || len(got) != 5 {
		t.Errorf("got %v", got)
	}
}

// plain returns the texts and numbers of an item.
func plain(it item) map[string]string {
	out := map[string]string{}
	for name, v := range it {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			out[name] = v.Value
		case *types.AttributeValueMemberN:
			out[name] = v.Value
		default:
			out[name] = fmt.Sprintf("%T", v)
		}
	}
	return out
}

// What an item of Powertools means, to the second of its expiry and to the
// millisecond of its in-progress expiry.
func TestItemOfPowertools(t *testing.T) {
	t.Parallel()
	const margin = 2000
	now, ms := began.Unix(), began.UnixMilli()
	completed := item{"status": s("COMPLETED"), "ttl": n(now), "data": s(`{"id": "ch_7"}`)}
	running := func(until int64) item {
		return item{"status": s("INPROGRESS"), "ttl": n(now + 3600), "in_progress_expiration": n(until)}
	}
	with := func(it item, more item) item {
		it = maps.Clone(it)
		maps.Copy(it, more)
		return it
	}
	takeOver := func(o *powertools.Options) { o.TakeOver = true }
	validated := func(o *powertools.Options) {
		o.Validation = func(context.Context, idempotent.Key) (any, error) { return json.Number("4200"), nil }
	}
	cents := func(o *powertools.Options) {
		o.Validation = func(context.Context, idempotent.Key) (any, error) { return json.Number("50.00"), nil }
	}
	const (
		hashOf4200 = "86dba86754c0ad93997a11fa947d97b2" // printf 4200 | md5sum
		hashOf50_0 = "88bce6f1bd04b8521f1167b5a6dec118" // printf 50.0 | md5sum, as Python writes 50.00
	)
	for name, c := range map[string]struct {
		item   item
		option func(*powertools.Options)
		want   string
	}{
		"completed":                        {completed, nil, `{"id": "ch_7"}`},
		"completed, without a result":      {item{"status": s("COMPLETED"), "ttl": n(now)}, nil, "null"},
		"completed, with an empty text":    {item{"status": s("COMPLETED"), "ttl": n(now), "data": s("")}, nil, "null"},
		"expired":                          {with(completed, item{"ttl": n(now - 1)}), nil, "free"},
		"completed, taken over":            {with(completed, item{"in_progress_expiration": n(ms - 60_000)}), takeOver, `{"id": "ch_7"}`},
		"expired, before its time-out":     {with(completed, item{"in_progress_expiration": n(ms + 60_000), "ttl": n(now - 1)}), nil, "free"},
		"validated, but not here":          {with(completed, item{"validation": s("0")}), nil, `{"id": "ch_7"}`},
		"a time to live of text":           {with(completed, item{"ttl": s("soon")}), nil, "powertools: invalid item: attribute ttl is not a number"},
		"running":                          {running(ms + 7000), nil, "in progress, retry after 2s, until 9s"},
		"about to end":                     {running(ms - 1500), nil, "in progress, retry after 500ms, until 500ms"},
		"running in the margin":            {running(ms - margin + 1), nil, "in progress, retry after 1ms, until 1ms"},
		"killed":                           {running(ms - margin), nil, "unknown"},
		"killed, taken over":               {running(ms - margin), takeOver, "free"},
		"running, not taken over":          {running(ms - margin + 1), takeOver, "in progress, retry after 1ms, until 1ms"},
		"killed long ago":                  {with(running(ms-margin), item{"ttl": n(now - 1)}), nil, "free"},
		"running past its retention":       {with(running(ms-margin+1), item{"ttl": n(now - 1)}), nil, "in progress, retry after 1ms, until 1ms"},
		"running without a time-out":       {item{"status": s("INPROGRESS"), "ttl": n(now + 3600)}, takeOver, "in progress, retry after 2s, until 59m59.5s"},
		"abandoned without a time-out":     {item{"status": s("INPROGRESS"), "ttl": n(now - 1)}, nil, "free"},
		"another key's":                    {item{"status": s("INPROGRESS"), "ttl": n(now + 3600), "once": s("charge#other")}, takeOver, "in progress, retry after 2s, until 59m59.5s"},
		"its own":                          {item{"status": s("INPROGRESS"), "ttl": n(now + 3600), "once": s(string(key.RecordID()))}, nil, "free"},
		"its own, completed by a late run": {with(completed, item{"once": s(string(key.RecordID()))}), nil, `{"id": "ch_7"}`},
		"the same payload":                 {with(completed, item{"validation": s(hashOf4200)}), validated, `{"id": "ch_7"}`},
		"the same payload, with cents":     {with(completed, item{"validation": s(hashOf50_0)}), cents, `{"id": "ch_7"}`},
		"another payload":                  {with(completed, item{"validation": s("0")}), validated, "mismatch"},
		"no payload":                       {completed, validated, "mismatch"},
		"another payload, running":         {with(running(ms+7000), item{"validation": s("0")}), validated, "mismatch"},
		"another payload, expired":         {with(completed, item{"validation": s("0"), "ttl": n(now - 1)}), validated, "free"},
		"an unknown status":                {with(completed, item{"status": s("DONE")}), nil, "powertools: invalid item: unknown value of attribute status"},
		"a status that is no text":         {with(completed, item{"status": n(1)}), nil, "powertools: invalid item: unknown value of attribute status"},
		"an expiry that is no number":      {with(running(ms), item{"in_progress_expiration": s("soon")}), nil, "powertools: invalid item: attribute in_progress_expiration is not a number"},
		"no JSON":                          {with(completed, item{"data": s("NaN")}), nil, "powertools: invalid item: the result is not JSON"},
		"of TypeScript":                    {with(completed, item{"data": n(7)}), nil, "powertools: invalid item: the result is not a text; is it an item of Python?"},
	} {
		db := dynamotest.New(table)
		put(t, db, with(c.item, item{"pk": s(inPython)}))
		before := fmt.Sprint(plain(get(t, db, inPython)))
		option := c.option
		if option == nil {
			option = func(*powertools.Options) {}
		}
		result, found, err := ask(t, db, powertools.Python, option)
		if got := outcome(result, found, err); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if changed := fmt.Sprint(plain(get(t, db, inPython))) != before; changed != (c.want == "free") && name != "its own" {
			t.Errorf("%s: the item was changed: %t", name, changed)
		}
	}
}

func outcome(result any, found bool, err error) string {
	running, isRunning := errors.AsType[*idempotent.InProgressError](err)
	switch {
	case isRunning:
		return fmt.Sprintf("in progress, retry after %s, until %s", running.RetryAfter, running.Until.Sub(began))
	case errors.As(err, new(*idempotent.MismatchError)):
		return "mismatch"
	case idempotent.IsUnknown(err):
		return "unknown"
	case err != nil:
		return err.Error()
	case !found:
		return "free"
	}
	return string(result.(json.RawMessage))
}

// A late execution of Powertools can complete an item whose key the guard has
// declared unknown. The item is the evidence then, and nothing else is.
func TestResolver(t *testing.T) {
	t.Parallel()
	declined := idempotent.Final("declined", "The card was declined.")
	const unvalidated = "validated by Powertools only"
	for name, c := range map[string]struct {
		late   item // what Powertools changes in the item; nil: it deletes it
		result func(json.RawMessage) (any, error)
		want   string
	}{
		"completed":          {item{"status": s("COMPLETED"), "data": s(`"ch_7"`)}, nil, "ch_7, <nil>"},
		"completed, no data": {item{"status": s("COMPLETED")}, nil, ", <nil>"},
		"declined":           {item{"status": s("COMPLETED")}, func(json.RawMessage) (any, error) { return nil, declined }, ", " + declined.Error()},
		"made by an adapter": {item{"status": s("COMPLETED")}, func(json.RawMessage) (any, error) { return idempotent.Resolved("ch_8"), nil }, "ch_8, <nil>"},
		"not decodable":      {item{"status": s("COMPLETED")}, func(json.RawMessage) (any, error) { return nil, errors.New("another shape") }, "failed"},
		"an invalid result":  {item{"status": s("COMPLETED"), "data": s("NaN")}, nil, "failed"},
		"an invalid expiry":  {item{"status": s("COMPLETED"), "ttl": s("soon")}, nil, "failed"},
		"without an expiry":  {item{"status": s("COMPLETED"), "ttl": nil}, nil, ", <nil>"},
		"at its expiry":      {item{"status": s("COMPLETED"), "ttl": n(began.Unix() + 120)}, nil, ", <nil>"},
		"expired":            {item{"status": s("COMPLETED"), "ttl": n(began.Unix() + 119)}, nil, "unknown"},
		"in progress":        {item{}, nil, "unknown"},
		"of another payload": {item{"status": s("COMPLETED"), "validation": s("0")}, nil, "unknown"},
		"deleted":            {nil, nil, "unknown"},
		unvalidated:          {item{"status": s("COMPLETED"), "data": s(`"ch_7"`), "validation": s("0")}, nil, "ch_7, <nil>"},
	} {
		db, clock := dynamotest.New(table), began
		options := func(o *powertools.Options) {
			shared(o)
			o.Now = func() time.Time { return clock }
			if o.Result = c.result; name != unvalidated {
				o.Validation = func(context.Context, idempotent.Key) (any, error) { return 4200, nil }
			}
		}
		it := item{"pk": s(inPython), "status": s("INPROGRESS"), "ttl": n(began.Unix() + 3600), "in_progress_expiration": n(began.UnixMilli() - 2000), "validation": s("86dba86754c0ad93997a11fa947d97b2")}
		put(t, db, it)
		store, err := dynamostore.New(db, table) // the table has records, items and notes
		if err != nil {
			t.Fatal(err)
		}
		guard, err := idempotent.New(store, func(o *idempotent.Options) {
			o.Now, o.Logger = func() time.Time { return clock }, slog.New(slog.DiscardHandler)
		})
		if err != nil {
			t.Fatal(err)
		}
		asked, err := powertools.Predecessor(db, table, powertools.Python, "charge.app.handler", options)
		if err != nil {
			t.Fatal(err)
		}
		request := func() (string, error) {
			bound := key
			bound.Fingerprint = idempotent.FingerprintBytes(nil)
			return idempotent.Do(t.Context(), guard, bound, func(context.Context) (string, error) { return "ran", nil },
				func(o *idempotent.Operation) { o.Predecessor = asked })
		}
		if _, err := request(); !errors.As(err, new(*idempotent.UnresolvedError)) {
			t.Fatalf("%s: got %v", name, err)
		}
		note := plain(get(t, db, "charge.app.handler#"+string(key.RecordID())))
		if want := map[string]string{"pk": "charge.app.handler#" + string(key.RecordID()), "status": "INPROGRESS", "once": inPython, "validation": "86dba86754c0ad93997a11fa947d97b2", "ttl": fmt.Sprint(began.Add(30 * 24 * time.Hour).Unix())}; name != unvalidated && fmt.Sprint(note) != fmt.Sprint(want) {
			t.Errorf("%s: the note is %v", name, note)
		}
		maps.Copy(it, c.late)
		maps.DeleteFunc(it, func(_ string, v types.AttributeValue) bool { return v == nil })
		if put(t, db, it); c.late == nil {
			if _, err := db.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: aws.String(table), Key: item{"pk": it["pk"]}}); err != nil {
				t.Fatal(err)
			}
		}
		clock = began.Add(2 * time.Minute)
		resolve, err := powertools.Resolver(db, table, powertools.Python, "charge.app.handler", nil, options)
		if err != nil {
			t.Fatal(err)
		}
		report, err := kit.Reconcile(t.Context(), guard, resolve)
		if err != nil || report.Due != 1 {
			t.Errorf("%s: %s, %v", name, report, err)
		}
		v, err := request()
		got := fmt.Sprintf("%s, %v", v, err)
		if errors.As(err, new(*idempotent.UnresolvedError)) {
			got = map[int]string{0: "unknown", 1: "failed"}[report.Failed]
		}
		if got != c.want {
			t.Errorf("%s: got %s after %s, want %s", name, got, report, c.want)
		}
	}
}

// In every order of an execution of Powertools that begins, is killed at its time-out,
// or completes late, and of three requests after the change-over, there is one effect.
// The end is the outcome of the item if Powertools completed it, and unknown if not.
func TestOrdersOfAChangeOver(t *testing.T) {
	t.Parallel()
	for l, in := range map[powertools.Language]string{powertools.Python: inPython, powertools.TypeScript: inTypeScript} {
		for _, order := range []string{"btcnnn", "btnnn"} { // begins, time-out, completes, new requests
			n := 0
			permute([]byte(order), func(order string) {
				b, at, c := strings.Index(order, "b"), strings.Index(order, "t"), strings.Index(order, "c")
				if b < at && (c < 0 || b < c) {
					n++
					changeOver(t, l, in, order)
				}
			})
			if want := map[string]int{"btcnnn": 40, "btnnn": 10}[order]; n != want {
				t.Errorf("%s: %d orders, want %d", order, n, want)
			}
		}
	}
}

// permute calls f with each order of the letters, once.
func permute(letters []byte, f func(string)) {
	seen := map[string]bool{}
	var from func(i int)
	from = func(i int) {
		if i == len(letters) && !seen[string(letters)] {
			seen[string(letters)] = true
			f(string(letters))
		}
		for j := i; j < len(letters); j++ {
			letters[i], letters[j] = letters[j], letters[i]
			from(i + 1)
			letters[i], letters[j] = letters[j], letters[i]
		}
	}
	from(0)
}

func changeOver(t *testing.T, l powertools.Language, in, order string) {
	t.Helper()
	db, store, clock := dynamotest.New(table), memstore.New(), began
	now := func(o *powertools.Options) { shared(o); o.Now = func() time.Time { return clock } }
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Now, o.Logger = func() time.Time { return clock }, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	asked, err := powertools.Predecessor(db, table, l, "charge.app.handler", now)
	if err != nil {
		t.Fatal(err)
	}
	resolve, err := powertools.Resolver(db, table, l, "charge.app.handler", nil, now)
	if err != nil {
		t.Fatal(err)
	}
	effects, began := []string{}, false // began: Powertools
	request := func() (string, error) {
		bound := key
		bound.Fingerprint = idempotent.FingerprintBytes(nil)
		return idempotent.Do(t.Context(), guard, bound, func(context.Context) (string, error) {
			effects = append(effects, "new")
			return "new", nil
		}, func(o *idempotent.Operation) { o.Predecessor = asked })
	}
	data := map[powertools.Language]types.AttributeValue{powertools.Python: s(`"old"`), powertools.TypeScript: s("old")}[l]
	for _, step := range order {
		clock = clock.Add(time.Second)
		switch step {
		case 'b': // as Powertools puts its item
			if began = get(t, db, in) == nil; began {
				put(t, db, item{"pk": s(in), "status": s("INPROGRESS"), "ttl": n(clock.Unix() + 86400), "in_progress_expiration": n(clock.UnixMilli() + 60_000)})
				effects = append(effects, "old")
			}
		case 't':
			clock = clock.Add(2 * time.Minute)
		case 'c':
			if it := get(t, db, in); began {
				maps.Copy(it, item{"status": s("COMPLETED"), "data": data})
				put(t, db, it)
			}
		case 'n':
			_, _ = request()
		}
	}
	clock = clock.Add(time.Hour)
	if _, err := kit.Reconcile(t.Context(), guard, resolve); err != nil {
		t.Fatal(err)
	}
	v, err := request()
	completes := strings.Contains(order, "c")
	switch unknown := errors.As(err, new(*idempotent.UnresolvedError)); {
	case len(effects) != 1:
		t.Errorf("%s, %s: the effects are %v", l, order, effects)
	case unknown != (began && !completes), !unknown && (err != nil || v != effects[0]):
		t.Errorf("%s, %s: the end is %q, %v after %v", l, order, v, err, effects)
	}
}

// A resolver passes every record that is not Powertools' to the other resolver. A
// record without a note, and a table that fails, are no evidence.
func TestResolverOfOtherRecords(t *testing.T) {
	t.Parallel()
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	record := driver.Record{ID: key.RecordID(), State: driver.StateUnknown}
	other := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		return idempotent.Later(time.Hour), nil
	}
	calls := 0
	afterNote := dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) {
		if calls++; calls > 1 {
			c.Err = errors.New("down")
			return
		}
		c.Out = &dynamodb.GetItemOutput{Item: item{"once": s("x")}}
	})
	down := dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) { c.Err = errors.New("down") })
	for _, c := range []struct {
		reader    powertools.Reader
		reason    driver.Reason
		otherwise idempotent.ResolveFunc
		want      idempotent.Resolution
		err       string
	}{
		{down, driver.ReasonLeaseEnded, other, idempotent.Later(time.Hour), "<nil>"},
		{down, driver.ReasonLeaseEnded, nil, idempotent.Later(0), "<nil>"},
		{down, driver.ReasonPredecessor, other, idempotent.Later(0), "powertools: get the item of an unknown key: down"},
		{dynamotest.New(table), driver.ReasonPredecessor, other, idempotent.Later(0), "<nil>"},
		{afterNote, driver.ReasonPredecessor, other, idempotent.Later(0), "powertools: get the item of an unknown key: down"},
	} {
		resolve, err := powertools.Resolver(c.reader, table, powertools.TypeScript, "charge", c.otherwise, shared)
		if err != nil {
			t.Fatal(err)
		}
		record.Reason = c.reason
		if got, err := resolve(t.Context(), guard.Pending(record)); got != c.want || fmt.Sprint(err) != c.err {
			t.Errorf("%s: got %+v, %v", c.reason, got, err)
		}
	}
	if _, err := powertools.Resolver(nil, table, powertools.Python, "p", nil); err == nil || err.Error() != "powertools: Resolver: the client or the table is missing" {
		t.Errorf("got %v", err)
	}
}

// TypeScript stores the attribute value of a result.
func TestResultOfTypeScript(t *testing.T) {
	t.Parallel()
	m := func(it item) types.AttributeValue { return &types.AttributeValueMemberM{Value: it} }
	for want, data := range map[string]types.AttributeValue{
		`{"id":"ch_7","lines":[1.5,true,null]}`: m(item{"id": s("ch_7"), "lines": &types.AttributeValueMemberL{Value: []types.AttributeValue{
			&types.AttributeValueMemberN{Value: "1.5"}, &types.AttributeValueMemberBOOL{Value: true}, &types.AttributeValueMemberNULL{Value: true}}}}),
		`"ch_7"`: s("ch_7"),
		`null`:   nil,
		"powertools: invalid item: the result contains a *types.AttributeValueMemberB, which JSON does not have":  m(item{"a": &types.AttributeValueMemberB{Value: []byte("x")}}),
		"powertools: invalid item: the result contains a *types.AttributeValueMemberNS, which JSON does not have": &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberNS{Value: []string{"1"}}}},
	} {
		db := dynamotest.New(table)
		it := item{"pk": s(inTypeScript), "status": s("COMPLETED"), "ttl": n(began.Unix() + 60)}
		if data != nil {
			it["data"] = data
		}
		put(t, db, it)
		result, found, err := ask(t, db, powertools.TypeScript)
		if note := get(t, db, "charge.app.handler#"+string(key.RecordID())); note != nil {
			t.Errorf("a key that is not unknown has the note %v", note)
		}
		if got := outcome(result, found, err); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Options.Result translates a result, or states a Final error.
func TestResultOption(t *testing.T) {
	t.Parallel()
	db := dynamotest.New(table)
	put(t, db, item{"pk": s(inPython), "status": s("COMPLETED"), "ttl": n(began.Unix() + 60), "data": s(`{"declined": true}`)})
	result, found, err := ask(t, db, powertools.Python, func(o *powertools.Options) {
		o.Result = func(json.RawMessage) (any, error) { return "ch_7", nil }
	})
	if result != "ch_7" || !found || err != nil {
		t.Errorf("got %v, %t, %v", result, found, err)
	}
	_, found, err = ask(t, db, powertools.Python, func(o *powertools.Options) {
		o.Result = func(json.RawMessage) (any, error) { return nil, idempotent.Final("declined", "The card was declined.") }
	})
	if _, final := idempotent.AsFinal(err); !final || found {
		t.Errorf("got %t, %v", found, err)
	}
}

// A failure of the table, of an option's function or of a hash runs nothing.
func TestFailures(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	fails := func(context.Context, idempotent.Key) (any, error) { return nil, down }
	for name, c := range map[string]struct {
		client powertools.Client
		option func(*powertools.Options)
		want   string
	}{
		"table":      {dynamotest.New("other"), shared, "powertools: put the item of the key: "},
		"note":       {noteFails(), shared, "powertools: put the note of an unknown key: down"},
		"payload":    {nil, func(o *powertools.Options) { o.Payload = fails }, "powertools: Options.Payload: down"},
		"validation": {nil, func(o *powertools.Options) { o.Validation = fails }, "powertools: Options.Validation: down"},
		"hash": {nil, func(o *powertools.Options) {
			o.Payload = func(context.Context, idempotent.Key) (any, error) { return "\xff", nil }
		}, "powertools: the payload cannot be hashed as in Python: "},
	} {
		if c.client == nil {
			c.client = dynamotest.New(table)
		}
		if _, found, err := ask(t, c.client, powertools.Python, c.option); found || err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %t, %v", name, found, err)
		}
	}
}

// noteFails returns a client of a killed item, whose second write fails.
func noteFails() powertools.Client {
	killed := &types.ConditionalCheckFailedException{Item: item{"status": s("INPROGRESS"), "ttl": n(began.Unix() - 1)}}
	return dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) {
		if c.Err = killed; c.In.(*dynamodb.PutItemInput).ConditionExpression == nil {
			c.Err = errors.New("down")
		}
	})
}

func TestPredecessorRefuses(t *testing.T) {
	t.Parallel()
	db := dynamotest.New(table)
	type args struct {
		client powertools.Client
		table  string
		l      powertools.Language
		prefix string
		option func(*powertools.Options)
	}
	for want, change := range map[string]func(*args){
		"the client or the table is missing":             func(a *args) { a.table = "" },
		"unknown Language(0); use Python or TypeScript":  func(a *args) { a.l = 0 },
		"the prefix is missing":                          func(a *args) { a.prefix = "" },
		"Options.Exclude is 1ms; it must be at least 1s": func(a *args) { a.option = func(o *powertools.Options) { o.Exclude = time.Millisecond } },
		"the client or the table is missing ":            func(a *args) { a.client = nil },
	} {
		a := args{db, table, powertools.Python, "p", func(o *powertools.Options) { o.NewHash = sha256.New }}
		change(&a)
		if _, err := powertools.Predecessor(a.client, a.table, a.l, a.prefix, a.option); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// Without options the attributes have the names that Powertools gives them. The hash
// function can be another one.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for hash, option := range map[string]func(*powertools.Options){
		"729040816f7330c4cb31f54a56f59a7b":                                 func(*powertools.Options) {},
		"4b08242598e89818f98b9cf7ec0d8ee9033be2c56e579847b0d60b6db516f746": func(o *powertools.Options) { o.NewHash = sha256.New }, // sha256sum
	} {
		var got map[string]string
		client := dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) {
			got, c.Out = plain(c.In.(*dynamodb.PutItemInput).Item), &dynamodb.PutItemOutput{}
		})
		asked, err := powertools.Predecessor(client, table, powertools.Python, "charge.app.handler", option)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now().Unix()
		if _, _, err := asked(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		expires, _ := strconv.ParseInt(got["expiration"], 10, 64)
		if after := time.Now().Unix(); expires < before+30*24*60*60 || expires > after+30*24*60*60 {
			t.Errorf("it expires at %q", got["expiration"])
		}
		if got["id"] != "charge.app.handler#"+hash || got["status"] != "INPROGRESS" || len(got) != 4 {
			t.Errorf("got %v", got)
		}
	}
}
