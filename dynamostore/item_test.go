// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
)

func sortedNames(it item) []string { return slices.Sorted(maps.Keys(it)) }

func showValue(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return fmt.Sprintf("S %q", v.Value)
	case *types.AttributeValueMemberN:
		return "N " + v.Value
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("B %x", v.Value)
	case *types.AttributeValueMemberL:
		elements := make([]string, len(v.Value))
		for i, e := range v.Value {
			elements[i] = showValue(e)
		}
		return "L " + strings.Join(elements, ", ")
	case *types.AttributeValueMemberM:
		members := []string{}
		for _, name := range sortedNames(v.Value) {
			members = append(members, name+" "+showValue(v.Value[name]))
		}
		return "M {" + strings.Join(members, ", ") + "}"
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprint("BOOL ", v.Value)
	default:
		return fmt.Sprintf("%T", v)
	}
}

func TestItem_EveryAttribute(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	r := fullRecord()
	r.ID = "charge#key"
	for i := range r.Owner {
		r.Owner[i], r.Version[i] = 0x0a, 0x0b
	}
	r.Fingerprint = idempotent.Fingerprint{1, 0xff}
	r.Steps[0].By = driver.StepByTransaction
	insert(t, s, r)
	want := strings.Join([]string{"",
		`att N 3`,
		`cdc S "gzip+json"`,
		`ch B 010203` + strings.Repeat("00", 29),
		`cl N 500000`,
		`cn N 2`,
		`ct N 1700000000001`,
		`dt N 1700000001500`,
		`enc S "json"`,
		`exp N 1700086400001`,
		`fp B 01ff` + strings.Repeat("00", 31),
		`lease N 1700000002345`,
		`os N 1700000000400`,
		`own B ` + strings.Repeat("0a", 16),
		`pa BOOL true`,
		`pk S "charge#key"`,
		`rat N 1700000002345`,
		`rc N 2`,
		`rec S "rerun"`,
		`ref S "orders/1 ü"`,
		`res B 7b226964223a2263685f31227d00ff`,
		`ret N 2592000000`,
		`rid S "request-1"`,
		`rk S "u#42"`,
		`rv S "v2"`,
		`sn L S "reserve", S "charge"`,
		`st S "C"`,
		`steps M {charge M {a N 2, b S "T", e S "json", m S "M", r B 31, s S "f00d", t N 1700000000500}, inform M {a N 3, m S "L"}}`,
		`tp S "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`,
		`ttl N 1700090001`, // an hour later, rounded up
		`uret N 7776000000`,
		`v N 1`,
		`why S "result"`,
		`wid B ` + strings.Repeat("0b", 16),
	}, "\n\t")
	if got := show(fake.item("charge#key")); got != want {
		t.Errorf("the item is%s\nwant%s", got, want)
	}
}

// longest is the longest duration in whole milliseconds.
const longest = math.MaxInt64 / time.Millisecond * time.Millisecond

// A duration that would round to zero, which means the default, is stored as one
// millisecond.
func TestItem_ShortestRetention(t *testing.T) {
	t.Parallel()
	s, r := newStore(t, newFake()), someRecord()
	r.Retention = 1
	insert(t, s, r)
	if got, err := s.Get(t.Context(), r.ID); err != nil || got.Retention != time.Millisecond {
		t.Errorf("got %+v, %v", got, err)
	}
}

// zeroIn returns the names of the exported fields that are not set, nested ones
// included.
func zeroIn(v reflect.Value, name string) (names []string) {
	switch {
	case v.IsZero():
		return []string{name}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		return zeroIn(v.Index(0), name)
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				names = append(names, zeroIn(v.Field(i), name+"."+field.Name)...)
			}
		}
	}
	return names
}

// A record is read as it was written. A new field that fullRecord does not set fails
// this test, and then one that is not stored.
func TestItem_RoundTrip(t *testing.T) {
	t.Parallel()
	if got := zeroIn(reflect.ValueOf(fullRecord()), ""); !slices.Equal(got, []string{".Announced", ".Exhausted"}) {
		t.Errorf("fullRecord does not set %s", got)
	}
	type change struct {
		name  string
		apply func(*driver.Record)
	}
	changes := []change{
		{"as it is", func(r *driver.Record) {}},
		{"in progress", func(r *driver.Record) { r.State = driver.StateInProgress }},
		{"retryable", func(r *driver.Record) { r.State = driver.StateRetryable }},
		{"unknown", func(r *driver.Record) { r.State = driver.StateUnknown }},
		{"Reconcile", func(r *driver.Record) { r.Recovery = idempotent.Reconcile }},
		{"another reason", func(r *driver.Record) { r.Reason = "of a later version" }},
		{"the largest attempt", func(r *driver.Record) { r.Attempt = math.MaxInt }},
		{"the largest count", func(r *driver.Record) { r.ReconcileAttempts = math.MaxInt }},
		{"chunks of an empty result", func(r *driver.Record) { r.Chunks = driver.Chunks{Count: 1} }},
		{"the largest number of chunks", func(r *driver.Record) { r.Chunks.Count, r.Chunks.Length = math.MaxInt, math.MaxInt }},
		{"an empty result", func(r *driver.Record) { r.Result = []byte{} }},
		{"an empty result of a step", func(r *driver.Record) { r.Steps[0].Result = []byte{} }},
		{"a step without a source", func(r *driver.Record) { r.Steps[0].By, r.Steps[0].Shape = 0, "" }},
		{"a step by evidence", func(r *driver.Record) { r.Steps[0].By = driver.StepByEvidence }},
		{"given up", func(r *driver.Record) { r.State, r.Exhausted = driver.StateUnknown, true }},
		{"every byte", func(r *driver.Record) {
			for b := range 256 {
				r.Result = append(r.Result, byte(b))
			}
		}},
		{"owner of zeroes", func(r *driver.Record) { r.Owner = driver.Owner{} }},
		{"version of zeroes", func(r *driver.Record) { r.Version = driver.Version{} }},
		{"fingerprint of zeroes", func(r *driver.Record) { r.Fingerprint = idempotent.Fingerprint{} }},
		{"the longest retentions", func(r *driver.Record) {
			r.Retention, r.UnresolvedRetention = longest, longest
		}},
		{"in 1970", func(r *driver.Record) { r.Created = at(0) }},
		{"before 1970", func(r *driver.Record) { r.Created = at(-1) }},
		{"in the year 9999", func(r *driver.Record) {
			r.Expires = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
		}},
	}
	// Each field zero, one at a time.
	full := reflect.TypeFor[driver.Record]()
	for i := range full.NumField() {
		if name := full.Field(i).Name; name != "ID" && name != "State" && full.Field(i).IsExported() {
			changes = append(changes, change{name + " zero", func(r *driver.Record) {
				reflect.ValueOf(r).Elem().FieldByName(name).SetZero()
			}})
		}
	}
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, newFake())
			want := fullRecord()
			c.apply(&want)
			insert(t, s, want)
			got, err := s.Get(t.Context(), want.ID)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

// encode refuses records that decode would refuse, so that the mistake is found
// where it was made.
func TestItem_RefusesToWrite(t *testing.T) {
	t.Parallel()
	const extra = "attribute later in Extra" // not in DynamoDB's form, so it would be lost
	foreign := func(r *driver.Record, step, data string) {
		r.SetExtra(map[string]map[string]json.RawMessage{step: {"later": json.RawMessage(data)}})
	}
	for _, tt := range []struct {
		name, want string
		apply      func(*driver.Record)
	}{
		{"no id", "id", func(r *driver.Record) { r.ID = "" }},
		{"no state", "State", func(r *driver.Record) { r.State = 0 }},
		{"unknown state", "State", func(r *driver.Record) { r.State = 99 }},
		{"unknown recovery", "Recovery", func(r *driver.Record) { r.Recovery = 99 }},
		{"chunks without a count", "Chunks", func(r *driver.Record) { r.Chunks.Count = 0 }},
		{"a checksum without chunks", "Chunks", func(r *driver.Record) { r.Chunks.Count, r.Chunks.Length = 0, 0 }},
		{"a negative number of chunks", "Chunks", func(r *driver.Record) { r.Chunks.Count = -1 }},
		{"chunks of negative length", "Chunks", func(r *driver.Record) { r.Chunks.Length = -1 }},
		{"a negative retention", "retention", func(r *driver.Record) { r.Retention = -1 }},
		{"a negative unresolved retention", "retention", func(r *driver.Record) { r.UnresolvedRetention = -1 }},
		{"a declared step without a name", "declared step", func(r *driver.Record) { r.StepNames = []string{"charge", ""} }},
		{"announced, and completed", "Announced", func(r *driver.Record) { r.Announced = true }},
		{"announced, and never due", "Announced", func(r *driver.Record) { r.State, r.Due, r.Announced = driver.StateInProgress, time.Time{}, true }},
		{"announced, and given up", "Announced", func(r *driver.Record) { r.State, r.Exhausted, r.Announced = driver.StateInProgress, true, true }},
		{"no lease", "LeaseEnd", func(r *driver.Record) { r.State, r.LeaseEnd = driver.StateInProgress, time.Time{} }},
		{"given up, and never due", "Exhausted", func(r *driver.Record) { r.State, r.Exhausted, r.Due = driver.StateUnknown, true, time.Time{} }},
		{"a step without a name", "invalid step", func(r *driver.Record) { r.Steps[0].Name = "" }},
		{"a step of an unknown mode", "invalid step", func(r *driver.Record) { r.Steps[0].Mode = driver.AtMostOnce + 1 }},
		{"a step's result without an encoding", "invalid step", func(r *driver.Record) { r.Steps[0].Encoding = "" }},
		{"a step's encoding without a result", "invalid step", func(r *driver.Record) { r.Steps[0].Finished = false }},
		{"a step of an unknown source", "invalid step", func(r *driver.Record) { r.Steps[0].By = driver.StepByEvidence + 1 }},
		{"a step's source without a result", "invalid step", func(r *driver.Record) { r.Steps[0].Finished, r.Steps[0].Encoding = false, "" }},
		{"true in Extra", extra, func(r *driver.Record) { foreign(r, "", "true") }},
		{"no type in a step's Extra", extra, func(r *driver.Record) { foreign(r, "charge", "{}") }},
		{"an unknown type in a list in Extra", extra, func(r *driver.Record) { foreign(r, "inform", `{"L":[{"X":1}]}`) }},
		{"no type in a map in Extra", extra, func(r *driver.Record) { foreign(r, "", `{"M":{"x":{}}}`) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := newFake()
			s := newStore(t, fake)
			r := fullRecord()
			tt.apply(&r)
			_, insertErr := s.Insert(t.Context(), r, at(0))
			_, replaceErr := s.Replace(t.Context(), r, r.Version)
			for _, err := range []error{insertErr, replaceErr} {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want one about %s", err, tt.want)
				}
			}
			if fake.count("PutItem") != 0 {
				t.Error("it was sent")
			}
		})
	}
}

// Every invalid attribute is an error that names the attribute, on all three ways
// of reading it, and contains no value.
func TestItem_Damaged(t *testing.T) {
	t.Parallel()
	s := func(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
	n := func(v string) types.AttributeValue { return &types.AttributeValueMemberN{Value: v} }
	b := func(v string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(v)} }
	const secret = "SECRET"
	step := item{"m": s("L"), "a": n("1")}
	for _, tt := range []struct {
		attributes string               // the first is in the error; one of a step is steps.name.attribute
		value      types.AttributeValue // nil: removed
		problem    string
	}{
		{"v", nil, "is missing"},
		{"v", s("1"), "is not a number"},
		{"v", n("2"), "deploy the newer version"},
		{"v", n("0"), "deploy the newer version"},
		{"v", n("1.5"), "is not a 64-bit integer"},
		{"pk", n("1"), "is not a string"},
		{"pk", s(""), "is empty"},
		{"st", nil, "is missing"},
		{"st", s("X" + secret), "does not know"},
		{"st", b("C"), "is not a string"},
		{"rec", nil, "is missing"},
		{"rec", s(secret), "does not know"},
		{"own", nil, "is missing"},
		{"own", s(secret), "is not binary"},
		{"own", b("fifteen bytes.."), "does not have 16 bytes"},
		{"own", b(""), "does not have 16 bytes"},
		{"wid", nil, "is missing"},
		{"wid", n("1"), "is not binary"},
		{"wid", b("seventeen bytes.."), "does not have 16 bytes"},
		{"fp", nil, "is missing"},
		{"fp", b(secret), "does not have 33 bytes"},
		{"fp", &types.AttributeValueMemberNULL{Value: true}, "is not binary"},
		{"att", nil, "is missing"},
		{"att", s(secret), "is not a number"},
		{"att", n("9223372036854775808"), "is not a 64-bit integer"},
		{"why", n("1"), "is not a string"},
		{"lease", s(secret), "is not a number"},
		{"lease", n("1e3"), "is not a 64-bit integer"},
		{"exp", s(secret), "is not a number"},
		{"exp", n("1700000000000.5"), "is not a 64-bit integer"},
		{"ttl", s(secret), "is not a number"},
		{"ct", b(secret), "is not a number"},
		{"dt", b(secret), "is not a number"},
		{"res", s(secret), "is not binary"},
		{"enc", b(secret), "is not a string"},
		{"rv", b(secret), "is not a string"},
		{"ret", s(secret), "is not a number"},
		{"ret", n("0"), "is not a duration"},
		{"ret", n("9223372036855"), "is not a duration"}, // longer than a time.Duration can be
		{"uret", n("-1"), "is not a duration"},
		{"cdc", b(secret), "is not a string"},
		{"sn", s(secret), "is not a list of names"},
		{"sn", &types.AttributeValueMemberL{}, "is not a list of names"},
		{"sn", &types.AttributeValueMemberL{Value: []types.AttributeValue{s("")}}, "is not a list of names"},
		{"sn", &types.AttributeValueMemberL{Value: []types.AttributeValue{n("1")}}, "is not a list of names"},
		{"os", b(secret), "is not a number"},
		{"pa", s(secret), "is not true"},
		{"pa", &types.AttributeValueMemberBOOL{}, "is not true"},
		{"cn", nil, "is missing"},
		{"cn", s(secret), "is not a number"},
		{"cn", n("1.5"), "is not a 64-bit integer"},
		{"cn", n("0"), "is not a valid number of chunks"},
		{"cn", n("-1"), "is not a valid number of chunks"},
		{"cl", nil, "is missing"},
		{"cl", b(secret), "is not a number"},
		{"cl", n("-1"), "is not a valid length"},
		{"ch", nil, "is missing"},
		{"ch", s(secret), "is not binary"},
		{"ch", b(secret), "does not have 32 bytes"},
		{"ref", b(secret), "is not a string"},
		{"rid", &types.AttributeValueMemberL{}, "is not a string"},
		{"rk", n("1"), "is not a string"},
		{"rat", s(secret), "is not a number"},
		{"rc", s(secret), "is not a number"},
		// A record without one of the attributes that locate a large result must not look
		// like a record without a result.
		{"cn cl", nil, "is missing"},
		{"cn ch", nil, "is missing"},
		{"cl ch", nil, "is missing"},
		{"steps", s(secret), "is not a map"},
		{"steps.charge", s(secret), "contains a value that is not a step"},
		{"steps.", &types.AttributeValueMemberM{Value: step}, "contains a value that is not a step"},
		{"steps.charge.m", nil, "is missing"},
		{"steps.charge.m", s("X" + secret), "does not know"},
		{"steps.charge.a", nil, "is missing"},
		{"steps.charge.r", nil, "without an encoding, or missing"},
		{"steps.charge.r", s(secret), "is not binary"},
		{"steps.charge.e", nil, "attribute r is present without an encoding, or missing"},
		{"steps.charge.b", s("X" + secret), "does not know"},
		{"steps.charge.b", n("1"), "is not a string"},
		{"steps.charge.s", n("1"), "is not a string"},
		{"steps.charge.e steps.charge.r", nil, "attribute b is present without a result"},
	} {
		t.Run(tt.attributes+" "+tt.problem, func(t *testing.T) {
			t.Parallel()
			fake := newFake()
			store := newStore(t, fake)
			r := fullRecord()
			insert(t, store, r)
			fake.alter = func(it item) { // not all of it can be stored
				for attribute := range strings.SplitSeq(tt.attributes, " ") {
					in := it
					path := strings.Split(attribute, ".")
					name := path[len(path)-1]
					for _, outer := range path[:len(path)-1] {
						in = in[outer].(*types.AttributeValueMemberM).Value
					}
					if in[name] = tt.value; tt.value == nil {
						delete(in, name)
					}
				}
			}
			wantDamaged(t, store, r, tt.attributes, tt.problem)
		})
	}
	// A claim without its lease must not look like one whose lease has ended.
	fake := newFake()
	store, r := newStore(t, fake), someRecord()
	insert(t, store, r)
	fake.change(string(r.ID), func(it item) { delete(it, "lease") })
	wantDamaged(t, store, r, "lease", "is missing")
}

func wantDamaged(t *testing.T, store driver.Store, r driver.Record, attributes, problem string) {
	t.Helper()
	attribute, _, _ := strings.Cut(attributes, " ")
	path := strings.Split(attribute, ".")
	switch {
	case strings.HasPrefix(problem, "attribute"): // another one
		attribute = ""
	case len(path) == 2: // it names no step
		attribute = path[0]
	default:
		attribute = path[len(path)-1]
	}
	_, getErr := store.Get(t.Context(), r.ID)
	_, insertErr := store.Insert(t.Context(), r, at(0))
	_, replaceErr := store.Replace(t.Context(), r, newVersion())
	for way, err := range map[string]error{"Get": getErr, "Insert": insertErr, "Replace": replaceErr} {
		if err == nil {
			t.Errorf("%s took it", way)
			continue
		}
		text := err.Error()
		if !strings.HasPrefix(text, "dynamostore: ") || !strings.Contains(text, "attribute "+attribute) || !strings.Contains(text, problem) {
			t.Errorf("%s: %v; want it to contain %s and %q", way, err, attribute, problem)
		}
		if strings.Contains(text, "SECRET") || strings.Contains(text, string(r.ID)) {
			t.Errorf("%s contains a value: %v", way, err)
		}
	}
}

// A text that may be missing may also be empty, because another writer may store
// it so.
func TestItem_EmptyTexts(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	r := someRecord()
	r.Reason = ""
	insert(t, s, r)
	for _, name := range []string{"why", "enc", "rv", "ref", "rid"} {
		fake.change(string(r.ID), func(it item) { it[name] = &types.AttributeValueMemberS{} })
	}
	got, err := s.Get(t.Context(), r.ID)
	if err != nil || !reflect.DeepEqual(*got, r) {
		t.Errorf("got %+v, %v, want %+v", got, err, r)
	}
}

// Attributes that a later version wrote into a record and into its steps are written
// back, whatever their type. Extra changes no attribute that this version knows.
func TestItem_KeepsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	r := fullRecord()
	insert(t, s, r)
	scalars := []types.AttributeValue{
		&types.AttributeValueMemberS{Value: "ü <a>"}, &types.AttributeValueMemberN{Value: "-1.5"}, &types.AttributeValueMemberB{Value: []byte{0, 0xff}},
		&types.AttributeValueMemberBOOL{}, &types.AttributeValueMemberNULL{Value: true},
		&types.AttributeValueMemberSS{Value: []string{"a", "b"}}, &types.AttributeValueMemberNS{Value: []string{"1"}}, &types.AttributeValueMemberBS{Value: [][]byte{{1}}},
	}
	later := item{"later": &types.AttributeValueMemberM{Value: item{"all": &types.AttributeValueMemberL{Value: scalars}}}, "": scalars[4]}
	fake.change(string(r.ID), func(it item) {
		maps.Copy(it, later)
		maps.Copy(stepIn(it, "charge"), later)
		stepIn(it, "inform")["latest"] = scalars[0]
	})
	want := fake.item(string(r.ID))
	for range 2 {
		read, err := s.Get(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		next := *read
		next.Version = newVersion()
		want["wid"] = &types.AttributeValueMemberB{Value: next.Version[:]}
		read.Extra()[""]["pa"], read.Extra()["inform"]["b"] = []byte(`{"BOOL":true}`), []byte(`{"S":"R"}`) // both are missing in the item
		if met, err := s.Replace(t.Context(), next, read.Version); met != nil || err != nil {
			t.Fatal(met, err)
		}
		if got := fake.item(string(r.ID)); !reflect.DeepEqual(got, want) {
			t.Errorf("the item is\n%s\nwant\n%s", show(got), show(want))
		}
	}
}

// stepIn returns the attributes of a step.
func stepIn(it item, name string) item {
	return it["steps"].(*types.AttributeValueMemberM).Value[name].(*types.AttributeValueMemberM).Value
}

// F34: the time to live ends after the expiry, never before it.
func TestItem_TimeToLiveIsRoundedUp(t *testing.T) {
	t.Parallel()
	for expires, want := range map[int64]float64{
		1_700_000_000_000: 1_700_003_600,
		1_700_000_000_001: 1_700_003_601,
		1_700_000_000_999: 1_700_003_601,
		1_700_000_001_000: 1_700_003_601,
		-3_600_001:        0,
	} {
		fake := newFake()
		r := fullRecord()
		r.Expires = at(expires)
		insert(t, newStore(t, fake), r)
		if got := floatOf(fake.item(string(r.ID))["ttl"]); got != want {
			t.Errorf("ttl of a record that expires at %d ms is %.0f s, want %.0f", expires, got, want)
		}
	}
}

// F25: a dump of the table shows neither a key nor a hash that depends on a request
// alone: equal requests cannot be found in it, and a card number cannot be found
// by trying all of them. Every state that a request can leave is in the dump.
func TestDumpShowsNoRequest(t *testing.T) {
	t.Parallel()
	fake := newFake()
	guard, err := idempotent.New(newStore(t, fake), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	type charge struct {
		Card string `json:"card"`
	}
	const card, scope = "4242424242424242", "tenant-acme"
	const body = `{"card":"` + card + `"}`
	content, err := idempotent.FingerprintOf(charge{Card: card})
	if err != nil {
		t.Fatal(err)
	}
	var keys []idempotent.Key
	for i, end := range []error{nil, idempotent.Final("declined", ""), idempotent.NotExecuted(errors.New("busy")), errors.New("no reply")} {
		key := idempotent.Key{Operation: "charge", Scope: scope, ID: fmt.Sprintf("f3b0c1d2-%d", i), Fingerprint: content}
		keys = append(keys, key)
		if _, err := idempotent.Do(t.Context(), guard, key, func(context.Context) (int, error) { return i, end }); !errors.Is(err, end) {
			t.Fatal(err)
		}
	}

	items, dump := dumped(fake)
	if len(items) != len(keys) {
		t.Fatalf("%d items, want %d", len(items), len(keys))
	}
	sum, spaced, raw := sha256.Sum256([]byte(body)), sha256.Sum256([]byte(body+"\n")), idempotent.FingerprintBytes([]byte(body))
	// Four digits occur in random bytes by chance. Twelve do not.
	secrets := [][]byte{[]byte(scope), []byte(card[4:]), content[1:], sum[:], spaced[:], raw[1:]}
	for _, k := range keys {
		secrets = append(secrets, []byte(k.ID))
	}
	for _, secret := range secrets {
		for _, form := range []string{string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
			if dump.contains(form) {
				t.Errorf("the dump contains %q", form)
			}
		}
	}
	seen := map[string]bool{}
	for _, it := range items {
		fp, ok := it["fp"].(*types.AttributeValueMemberB)
		if !ok || len(fp.Value) != len(content) || seen[string(fp.Value)] {
			t.Errorf("the fingerprint of an item is %v: want one of its own", it["fp"])
			continue
		}
		seen[string(fp.Value)] = true
	}
}

// With a Sealer, a dump of the table shows no result, wherever it is stored. It
// shows what operators need: the operation, the names of steps, and references.
func TestDumpShowsNoSealedResult(t *testing.T) {
	t.Parallel()
	const secret = "4242424242424242"
	fake, sealer := newFake(), kit.NewSealer()
	guard, err := idempotent.New(newStore(t, fake), sealer.Option, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	send := func(id string, handler func(ctx context.Context) (string, error)) string {
		t.Helper()
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes(nil)}
		value, err := idempotent.Do(t.Context(), guard, key, func(ctx context.Context) (string, error) {
			execution, _ := idempotent.FromContext(ctx)
			if err := execution.SetRef("orders/7"); err != nil {
				t.Error(err)
			}
			return handler(ctx)
		})
		return fmt.Sprint(value, err)
	}
	noise := make([]byte, 1<<20) // more than one item beside the record
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	large := func(context.Context) (string, error) { return secret + base64.StdEncoding.EncodeToString(noise), nil }
	for range 2 {
		if got := send("large", large); len(got) < 1<<20 || !strings.HasPrefix(got, secret) {
			t.Errorf("the large result is %d bytes", len(got))
		}
	}
	send("small", func(context.Context) (string, error) { return secret, nil })
	send("final", func(context.Context) (string, error) { return "", idempotent.Final(secret, secret) })
	send("step", func(ctx context.Context) (string, error) {
		if _, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return secret, nil }); err != nil {
			t.Error(err)
		}
		return "", errors.New("no reply")
	})

	items, dump := dumped(fake)
	if len(items) < 6 {
		t.Fatalf("%d items, want at least 6", len(items))
	}
	if dump.contains(secret) {
		t.Error("the dump contains a result")
	}
	for _, shown := range []string{"charge#", "pay", "orders/7", "json+sealed", "final+sealed"} {
		if !dump.contains(shown) {
			t.Errorf("the dump does not contain %q", shown)
		}
	}
}

// dump is what the items of a table show.
type dump string

func dumped(fake *fakeDynamoDB) (items []item, all dump) {
	for _, it := range fake.all() {
		items = append(items, it)
		all += dump(show(it))
	}
	return items, all
}

// contains reports whether the dump has the text, also in a binary attribute.
func (d dump) contains(text string) bool {
	return strings.Contains(string(d), text) || strings.Contains(string(d), hex.EncodeToString([]byte(text)))
}
