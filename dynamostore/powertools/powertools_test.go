// SPDX-License-Identifier: Apache-2.0

package powertools_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/dynamostore/powertools"
	"github.com/once-lambda/once/idempotent"
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
	const hashOf4200 = "86dba86754c0ad93997a11fa947d97b2" // printf 4200 | md5sum
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
