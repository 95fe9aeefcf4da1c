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
	r.Steps = []driver.StepRecord{
		{Name: "charge", Finished: true, Mode: driver.AtMostOnce, Attempt: 2, At: at(500), By: driver.StepByTransaction, Shape: "f00d", Encoding: "json", Result: []byte("1")},
		{Name: "inform", Attempt: 3},
	}
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
		`steps M {charge M {a N 2, b S "T", e S "json", m S "M", r B 31, s S "f00d", t N 500}, inform M {a N 3, m S "L"}}`,
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

func TestItem_AbsentWhereZero(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	r := driver.Record{ID: "charge#key", State: driver.StateRetryable}
	insert(t, s, r)
	want := []string{"att", "fp", "own", "pk", "rec", "st", "v", "wid"}
	if got := sortedNames(fake.item("charge#key")); !slices.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
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

// setAll sets every field of what v points to, nested ones included, to a distinct
// value.
func setAll(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		setAll(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(at(1_700_000_000_000 + *n)))
			return
		}
		for i := range v.NumField() {
			setAll(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setAll(v.Index(0), n)
	case reflect.Array:
		for i := range v.Len() {
			setAll(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(*n * int64(time.Millisecond))
		}
	case reflect.Uint8:
		v.SetUint(uint64(*n) % 255)
	}
}

// A record in which every field is set is read as it was written. A new field that
// is not stored fails this test.
func TestItem_EveryFieldSet(t *testing.T) {
	t.Parallel()
	var want driver.Record
	n := int64(0)
	setAll(reflect.ValueOf(&want), &n)
	want.State, want.Recovery = driver.StateInProgress, driver.Resume
	want.Announced = false // a record that is given up is not announced
	want.Steps[0].Mode, want.Steps[0].By = driver.AtMostOnce, driver.StepByEvidence
	s := newStore(t, newFake())
	insert(t, s, want)
	got, err := s.Get(t.Context(), want.ID)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestItem_RoundTrip(t *testing.T) {
	t.Parallel()
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
	for _, tt := range []struct {
		attribute string
		value     types.AttributeValue // nil: removed
		problem   string
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
	} {
		t.Run(tt.attribute+" "+tt.problem, func(t *testing.T) {
			t.Parallel()
			fake := newFake()
			store := newStore(t, fake)
			r := fullRecord()
			insert(t, store, r)
			fake.alter = func(it item) { // not all of it can be stored
				if it[tt.attribute] = tt.value; tt.value == nil {
					delete(it, tt.attribute)
				}
			}
			wantDamaged(t, store, r, tt.attribute, tt.problem)
		})
	}
}

// The attributes that locate a large result exist together: a record without one
// of them must not look like a record without a result.
func TestItem_ChunksInPart(t *testing.T) {
	t.Parallel()
	for _, lost := range [][]string{{"cn"}, {"cl"}, {"ch"}, {"cn", "cl"}, {"cn", "ch"}, {"cl", "ch"}} {
		fake := newFake()
		store := newStore(t, fake)
		r := fullRecord()
		insert(t, store, r)
		for _, name := range lost {
			fake.change(string(r.ID), func(it item) { delete(it, name) })
		}
		wantDamaged(t, store, r, lost[0], "is missing")
	}
}

// A claim without its lease must not look like one whose lease has ended.
func TestItem_InProgressWithoutLease(t *testing.T) {
	t.Parallel()
	fake := newFake()
	store := newStore(t, fake)
	r := someRecord()
	insert(t, store, r)
	fake.change(string(r.ID), func(it item) { delete(it, "lease") })
	wantDamaged(t, store, r, "lease", "is missing")
}

func wantDamaged(t *testing.T, store driver.Store, r driver.Record, attribute, problem string) {
	t.Helper()
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
	r := stepped()
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

// An attribute in Extra that is not in DynamoDB's form is refused, because it would be
// lost.
func TestItem_ForeignExtra(t *testing.T) {
	t.Parallel()
	for data, step := range map[string]string{"true": "", "{}": "charge", `{"L":[{"X":1}]}`: "inform", `{"M":{"x":{}}}`: ""} {
		r := stepped()
		r.SetExtra(map[string]map[string]json.RawMessage{step: {"later": json.RawMessage(data)}})
		if _, err := newStore(t, newFake()).Insert(t.Context(), r, at(0)); err == nil || !strings.Contains(err.Error(), "attribute later in Extra") {
			t.Errorf("%s: got error %v", data, err)
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

// stepped returns a record with a finished step and a started one.
func stepped() driver.Record {
	r := someRecord()
	r.Steps = []driver.StepRecord{
		{Name: "charge", Finished: true, Mode: driver.AtMostOnce, Attempt: 2, At: at(1_700_000_000_500), By: driver.StepByRun, Shape: "f00d", Encoding: "json", Result: []byte("1")},
		{Name: "inform", Attempt: 3},
	}
	return r
}

// Steps are stored unchanged, with and without a result and a time, and with an
// empty result.
func TestSteps(t *testing.T) {
	t.Parallel()
	s := newStore(t, newFake())
	for _, change := range []func(*driver.Record){
		func(*driver.Record) {},
		func(r *driver.Record) { r.Steps[0].Result = []byte{} },
		func(r *driver.Record) { r.Steps[0].By, r.Steps[0].Shape = 0, "" },
		func(r *driver.Record) { r.Steps = nil },
	} {
		r := stepped()
		change(&r)
		insert(t, s, r)
		got, err := s.Get(t.Context(), r.ID)
		if err != nil || !reflect.DeepEqual(got.Steps, r.Steps) {
			t.Errorf("got %+v, %v, want %+v", got.Steps, err, r.Steps)
		}
	}
}

// A step that could not be read again is not written.
func TestSteps_Refused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.StepRecord){
		"no name":                      func(s *driver.StepRecord) { s.Name = "" },
		"an unknown mode":              func(s *driver.StepRecord) { s.Mode = driver.AtMostOnce + 1 },
		"a result without an encoding": func(s *driver.StepRecord) { s.Encoding = "" },
		"an encoding without a result": func(s *driver.StepRecord) { s.Finished = false },
		"an unknown source":            func(s *driver.StepRecord) { s.By = driver.StepByEvidence + 1 },
		"a source without a result":    func(s *driver.StepRecord) { s.Finished, s.Encoding = false, "" },
	} {
		fake := newFake()
		r := stepped()
		change(&r.Steps[0])
		if _, err := newStore(t, fake).Insert(t.Context(), r, at(0)); err == nil || !strings.Contains(err.Error(), "invalid step") || fake.count("PutItem") != 0 {
			t.Errorf("%s: %v after %d puts", name, err, fake.count("PutItem"))
		}
	}
}

// A step that is invalid, or of a later version, is an error.
func TestSteps_Damaged(t *testing.T) {
	t.Parallel()
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	within := func(change func(step item)) func(item) {
		return func(it item) {
			change(it["steps"].(*types.AttributeValueMemberM).Value["charge"].(*types.AttributeValueMemberM).Value)
		}
	}
	for name, c := range map[string]struct {
		damage func(it item)
		says   string
	}{
		"no map":                      {func(it item) { it["steps"] = text("x") }, "steps"},
		"a value that is not a step":  {func(it item) { it["steps"].(*types.AttributeValueMemberM).Value["charge"] = text("x") }, "not a step"},
		"no mode":                     {within(func(s item) { delete(s, "m") }), "m"},
		"a mode of a later version":   {within(func(s item) { s["m"] = text("X") }), "does not know"},
		"no attempt":                  {within(func(s item) { delete(s, "a") }), "a"},
		"no result":                   {within(func(s item) { delete(s, "r") }), "without an encoding, or missing"},
		"no encoding":                 {within(func(s item) { delete(s, "e") }), "without an encoding, or missing"},
		"a result that is text":       {within(func(s item) { s["r"] = text("x") }), "r"},
		"a source of a later version": {within(func(s item) { s["b"] = text("X") }), "does not know"},
		"a source that is a number":   {within(func(s item) { s["b"] = &types.AttributeValueMemberN{Value: "1"} }), "attribute b is not a string"},
		"a source without a result": {within(func(s item) {
			delete(s, "e")
			delete(s, "r")
		}), "attribute b is present without a result"},
		"a shape that is a number": {within(func(s item) { s["s"] = &types.AttributeValueMemberN{Value: "1"} }), "attribute s is not a string"},
		"a step without a name": {func(it item) {
			m := it["steps"].(*types.AttributeValueMemberM).Value
			m[""] = m["charge"]
		}, "not a step"},
		"an invalid attribute elsewhere, too": {func(it item) {
			delete(it, "st")
			within(func(s item) { delete(s, "m") })(it)
		}, "st"},
	} {
		fake := newFake()
		s := newStore(t, fake)
		r := stepped()
		insert(t, s, r)
		fake.change(string(r.ID), c.damage)
		if got, err := s.Get(t.Context(), r.ID); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, %v, want an error that says %q", name, got, err, c.says)
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
	const body, scope = `{"card":"4242424242424242"}`, "tenant-acme"
	content, err := idempotent.FingerprintOf(charge{Card: "4242424242424242"})
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
	secrets := [][]byte{[]byte(scope), []byte("4242"), content[1:], sum[:], spaced[:], raw[1:]}
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
