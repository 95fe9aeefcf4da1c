// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
)

func TestShape(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		stored []string
		result string
		want   string
	}{
		{[]string{`{"id":"a"}`}, `{"id":"b"}`, ""},
		{[]string{`{"id":"a"}`}, `[1]`, "it is an array, not an object"},
		{[]string{`{"id":"a"}`}, `null`, "it is null, not an object"},
		{[]string{`{"id":"a"}`, `null`}, `null`, ""},
		{[]string{`{"id":"a"}`}, `{"id":1}`, "id is a number, not a string"},
		{[]string{`{"id":"a"}`, `{"id":1}`}, `{"id":true}`, "id is a boolean, not a number or a string"},
		{[]string{`{"id":"a"}`}, `{"Id":"a"}`, "a member Id is new; the member id is missing"},
		{[]string{`{"id":"a","note":"x"}`, `{"id":"a"}`}, `{"id":"b"}`, ""},
		{[]string{`{"to":{"iban":"x"}}`}, `{"to":{"bic":"x"}}`, "a member to.bic is new; the member to.iban is missing"},
		{[]string{`{"lines":[{"n":1}]}`}, `{"lines":[{"n":2},{"n":"3"}]}`, "lines[].n is a string, not a number"},
		{[]string{`{"lines":[]}`}, `{"lines":[1]}`, ""},
		{[]string{`{"lines":[1]}`}, `{"lines":[]}`, ""},
		{[]string{`{}`}, `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, "a member a is new; a member b is new; a member c is new; a member d is new; a member e is new; 2 more"},
		{[]string{`{}`}, `{"a":1,"b":1,"c":1,"d":1,"e":1}`, "a member a is new; a member b is new; a member c is new; a member d is new; a member e is new"},
		{[]string{`[{"n":1}]`}, `[{"n":"a"},{"n":"b"}]`, "it[].n is a string, not a number"},
		{[]string{`[1]`, `["a"]`}, `[1]`, ""},
		{[]string{`{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}`}, `{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}`, ""}, // too deep
		{[]string{`text`}, `text`, ""},
		{[]string{`{}`}, `text`, "it is not JSON, not an object"},
		{[]string{`{"a\u001b":1}`}, `{}`, `the member a\x1b is missing`},
		{[]string{`[[[[[[[1]]]]]]]`}, `[[[[[[["1"]]]]]]]`, ""}, // too deep
	} {
		s := &shape{}
		for _, text := range row.stored {
			s.learn(valueOf([]byte(text)))
		}
		if got := strings.Join(s.differences(valueOf([]byte(row.result))), "; "); got != row.want {
			t.Errorf("%s after %q: got %q, want %q", row.result, row.stored, got, row.want)
		}
	}
}

// A response is compared with those of its status, the result of a step with those of the
// step. It is refused if there are only others.
func TestSamples(t *testing.T) {
	t.Parallel()
	plain, created, pay := subject{operation: "charge"}, subject{"charge", "", 201}, subject{"charge", "pay", 0}
	ok, conflict, mail := subject{"charge", "", 200}, subject{"charge", "", 409}, subject{"charge", "mail", 0}
	missing := "the result differs from 1 stored result of charge%s: the member id is missing"
	for _, row := range []struct {
		of     subject
		stored []subject
		any    bool
		want   string
	}{
		{created, nil, false, ""},
		{created, []subject{plain, pay}, false, ""},
		{created, []subject{{"refund", "", 201}}, false, ""},
		{created, []subject{ok, conflict, ok, mail}, true, "charge has no stored result of status 201, but 1 of status 409, 2 of status 200"},
		{created, []subject{ok, created}, true, fmt.Sprintf(missing, ", status 201")},
		{pay, []subject{plain, ok}, false, ""},
		{pay, []subject{mail, ok}, true, "charge has no stored result of step pay, but 1 of step mail"},
		{pay, []subject{mail, pay}, true, fmt.Sprintf(missing, ", step pay")},
		{plain, []subject{ok, mail}, false, ""},
		{plain, []subject{plain}, true, fmt.Sprintf(missing, "")},
	} {
		s := newSamples()
		s.want(row.of)
		for _, of := range row.stored {
			s.learn(of, []byte(`{"id":1}`))
		}
		found, got := len(s.countsFor(row.of)) > 0, ""
		if found {
			got = s.compare(row.of, []byte(`{}`))
		}
		if found != row.any || got != row.want {
			t.Errorf("%v after %v: got %t, %q", row.of, row.stored, found, got)
		}
	}
}

// scanned is a store that can be scanned.
type scanned struct {
	Store
	scan func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error]
}

// Scan lists what scan does.
func (s scanned) Scan(ctx context.Context, optFns ...func(*dynamostore.ScanOptions)) iter.Seq2[driver.Record, error] {
	var opts dynamostore.ScanOptions
	for _, f := range optFns {
		f(&opts)
	}
	if opts.Segments != 1 {
		panic("the segments of a table have a first page each")
	}
	return s.scan(ctx, opts.Progress)
}

// wanting returns samples that want results of one operation, and have some.
func wanting(seen int) *samples {
	s := newSamples()
	s.want(subject{})
	s.shapes[subject{}].seen = seen
	return s
}

// A large table costs a few pages, even if they have no records. If a page has
// many records, not all are used.
func TestResolve_ShapeReads(t *testing.T) {
	t.Parallel()
	c := &Settler{Env: &Env{}}
	o := scanned{}
	pages := 0
	o.scan = func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
		return func(yield func(driver.Record, error) bool) {
			for ; ctx.Err() == nil && pages < 10*shapePages; pages++ {
				progress(dynamostore.ScanProgress{})
			}
			yield(driver.Record{}, context.Cause(ctx))
		}
	}
	if read, err := c.learn(t.Context(), o, wanting(0)); read != 0 || err != nil || pages != shapePages {
		t.Errorf("read %d records in %d pages, %v", read, pages, err)
	}
	o.scan = func(context.Context, func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
		return func(yield func(driver.Record, error) bool) {
			for i := 0; i < 2*shapeReads && yield(driver.Record{ID: idempotent.Key{Operation: "mail", Scope: "acme", ID: fmt.Sprint(i)}.RecordID()}, nil); i++ {
			}
		}
	}
	if read, err := c.learn(t.Context(), o, wanting(0)); read != shapeReads || err != nil {
		t.Errorf("read %d records, %v", read, err)
	}
	if read, err := c.learn(t.Context(), o, wanting(shapeSamples)); read != 1 || err != nil {
		t.Errorf("read %d records of enough, %v", read, err)
	}
	o.scan = func(ctx context.Context, _ func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
		return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, ctx.Err()) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.learn(ctx, o, wanting(0)); err == nil {
		t.Error("an interruption is not an error")
	}
}

// A stored result of more than 256 KB is no example.
func TestSample_Large(t *testing.T) {
	t.Parallel()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	for bytes, seen := range map[int]int{256 << 10: 1, 256<<10 + 1: 0} {
		r := driver.Record{ID: idempotent.Key{Operation: "mail", Scope: "acme", ID: "m"}.RecordID(), State: driver.StateCompleted, Encoding: "json", Result: []byte(fmt.Sprintf(`"%0*d"`, bytes-2, 0))}
		s := newSamples()
		s.want(subject{operation: "mail"})
		if err := sample(t.Context(), g, &r, s); err != nil || s.shapes[subject{operation: "mail"}].seen != seen {
			t.Errorf("%d bytes: %+v, %v", bytes, s.shapes, err)
		}
	}
}
