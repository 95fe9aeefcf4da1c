// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// document is the stored form of a complete record, as a later version might write
// it: this version does not know the member "new".
func document() map[string]any {
	return map[string]any{
		"st": "C", "why": "result", "rec": "rerun",
		"own": make([]byte, 16), "wid": make([]byte, 16), "att": 3, "fp": make([]byte, 33),
		"lease": 1, "exp": 2, "ct": 3, "dt": 4,
		"enc": "json", "res": []byte("secret"), "rv": "2",
		"ret": 1000, "uret": 2000, "cdc": "gzip+json", "sn": []string{"pay", "ship"}, "os": 6, "pa": true,
		"cn": 1, "cl": 6, "ch": bytes.Repeat([]byte{1}, 32), "ref": "orders/1", "rid": "request-1", "tp": "trace-1",
		"due": 5, "rc": 2, "x": true,
		"steps": map[string]any{
			"pay":  map[string]any{"m": "L", "a": 3, "t": 4, "b": "R", "s": "int", "e": "json", "r": []byte("1"), "new": []any{"x"}},
			"ship": map[string]any{"m": "M", "a": 3, "new": 1},
		},
		"new": map[string]any{"a": []any{1.5, "x"}},
	}
}

func doc(t testing.TB, m map[string]any) string {
	t.Helper()
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestRecordFields(t *testing.T) {
	t.Parallel()
	r, err := boltstore.Decode("charge#1", boltstore.Seal("charge#1", doc(t, document())))
	if err != nil {
		t.Fatal(err)
	}
	// This loop finds a new field of a record or a step that is not stored.
	for _, stored := range []any{*r, r.Steps[0]} {
		v := reflect.ValueOf(stored)
		for _, f := range reflect.VisibleFields(v.Type()) {
			if v.FieldByIndex(f.Index).IsZero() && f.Type.Kind() != reflect.Array && f.Name != "Mode" {
				t.Errorf("%s.%s is not stored", v.Type(), f.Name)
			}
		}
	}
	if want := time.UnixMilli(1).UTC(); r.LeaseEnd != want {
		t.Errorf("LeaseEnd is %s, want %s", r.LeaseEnd, want)
	}
	again, err := boltstore.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := boltstore.Seal("charge#1", doc(t, document())); !bytes.Equal(again, want) {
		t.Errorf("encoded again:\n%s\nwant\n%s", again[5:], want[5:])
	}
}

func TestMalformedRecord(t *testing.T) {
	t.Parallel()
	const secret = "4242424242424242"
	for name, values := range map[string][]any{
		"st":    {nil, secret, 1, ""},
		"rec":   {nil, secret, 1},
		"why":   {nil, 1},
		"own":   {nil, secret, []byte("short"), make([]byte, 17)},
		"wid":   {nil, secret, []byte("short"), make([]byte, 17)},
		"fp":    {nil, secret, make([]byte, 32), make([]byte, 34)},
		"att":   {nil, secret, 1.5, json.Number("1e400")},
		"rc":    {nil, secret, 1.5},
		"lease": {nil, secret, 1.5, json.Number("42424242424242424242")},
		"exp":   {nil, secret, true},
		"ct":    {nil, secret},
		"dt":    {nil, secret},
		"due":   {nil, secret},
		"enc":   {nil, 1},
		"res":   {nil, "%" + secret, 1},
		"rv":    {nil, 1},
		"ret":   {nil, secret, 0, -1, 1.5, json.Number("9223372036855")},
		"uret":  {nil, secret, 0, -1},
		"cdc":   {nil, 1},
		"sn":    {nil, secret, []any{}, []any{""}, []any{nil}, []any{1}, map[string]any{}},
		"os":    {nil, secret},
		"pa":    {nil, secret, false, 1},
		"cn":    {nil, secret, 1.5},
		"cl":    {nil, secret, 1.5},
		"ch":    {nil, secret, make([]byte, 31), make([]byte, 33)},
		"ref":   {nil, 1},
		"rid":   {nil, 1},
		"tp":    {nil, 1},
		"x":     {nil, secret, false, 1},
		"steps": {nil, secret, 1, []any{}, map[string]any{}, // an empty list is not written
			map[string]any{"a": secret},
			map[string]any{"a": map[string]any{"a": secret, "m": "L"}},           // invalid attempt
			map[string]any{"a": map[string]any{"a": 1}},                          // missing mode
			map[string]any{"a": map[string]any{"a": 1, "m": secret}},             // of a later version
			map[string]any{"": map[string]any{"a": 1, "m": "L"}},                 // missing name
			map[string]any{"a": map[string]any{"a": 1, "m": "L", "e": "json"}},   // missing result
			map[string]any{"a": map[string]any{"a": 1, "m": "L", "r": []byte{}}}, // missing encoding
			map[string]any{"a": map[string]any{"m": "L"}},                        // missing attempt
			map[string]any{"a": map[string]any{"a": 1, "m": "L", "b": "R"}},      // a source without a result
			map[string]any{"a": map[string]any{"a": 1, "m": "L", "b": secret, "e": "json", "r": []byte{}}},
			map[string]any{"a": map[string]any{"a": 1, "m": "L", "s": 1}},
			map[string]any{"a": nil},
		},
	} {
		for _, value := range values {
			m := document()
			m[name] = value
			_, err := boltstore.Decode("charge#1", boltstore.Seal("charge#1", doc(t, m)))
			wantError(t, err, "its "+name+" is not ", "run the version that wrote it")
			if strings.Contains(err.Error(), "4242") {
				t.Errorf("the error %q contains a value", err)
			}
		}
	}
	for _, required := range []string{"st", "rec", "own", "wid", "fp"} {
		m := document()
		delete(m, required)
		_, err := boltstore.Decode("charge#1", boltstore.Seal("charge#1", doc(t, m)))
		wantError(t, err, "its "+required+" is missing")
	}
	for _, body := range []string{"", "null", "[]", "1", "{", `"` + secret + `"`, "{}x"} {
		_, err := boltstore.Decode("charge#1", boltstore.Seal("charge#1", body))
		wantError(t, err, "its document is not a JSON object")
	}

	good := boltstore.Seal("charge#1", doc(t, document()))
	for n := range 5 {
		_, err := boltstore.Decode("charge#1", good[:n])
		wantError(t, err, "a record is truncated")
	}
	_, err := boltstore.Decode("charge#2", good)
	wantError(t, err, "a record's checksum is wrong")
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x20
		_, err := boltstore.Decode("charge#1", flipped)
		wantError(t, err, "a record's checksum is wrong")
	}
	_, err = boltstore.Decode("charge#1", boltstore.SealVersion("charge#1", 2, "{}"))
	wantError(t, err, "format version 2", "reads 1", "run the version that wrote it")
}

// put writes value without using the store's methods.
func put(t testing.TB, path string, id idempotent.RecordID, value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(boltstore.Bucket).Put([]byte(id), value)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableRecord: an unreadable record does not let its handler run. It is
// neither replaced nor removed, and all other keys work.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	expired := record(1, at.AddDate(-1, 0, 0))
	insert(t, s, expired)
	s.Close()
	put(t, path, expired.ID, boltstore.SealVersion(expired.ID, 77, "{}"))

	s = open(t, path) // which purges
	_, err := s.Get(t.Context(), expired.ID)
	wantError(t, err, path, "format version 77")
	_, err = s.Insert(t.Context(), expired, at)
	wantError(t, err, "format version 77")
	_, err = s.Replace(t.Context(), expired, expired.Version)
	wantError(t, err, "format version 77")
	insert(t, s, record(2, time.Time{}))
}

// TestLaterVersionsMembers: members of a later version survive a Replace.
func TestLaterVersionsMembers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	insert(t, s, record(1, time.Time{}))
	s.Close()
	id := record(1, time.Time{}).ID
	later := document()
	delete(later, "exp")
	put(t, path, id, boltstore.Seal(id, doc(t, later)))

	s = open(t, path)
	r, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	was := r.Version
	r.Version, r.Ref, r.Chunks = version(9), "", driver.Chunks{}
	r.Steps[1].Attempt = 4
	if met, err := s.Replace(t.Context(), *r, was); err != nil || met != nil {
		t.Fatalf("Replace: got %v, %v", met, err)
	}
	got, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v\nwant %+v", got, r)
	}
	value, err := boltstore.Encode(got)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(value[5:], &m); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m["new"], later["new"]) {
		t.Errorf("the unknown member is %v, want %v", m["new"], later["new"])
	}
	steps := m["steps"].(map[string]any)
	if got := steps["pay"].(map[string]any)["new"]; !reflect.DeepEqual(got, []any{"x"}) {
		t.Errorf("the unknown member of a step is %v", got)
	}
	if got := steps["ship"].(map[string]any)["new"]; got != 1.0 {
		t.Errorf("the unknown member of another step is %v", got)
	}
	for _, name := range []string{"ref", "cn", "cl", "ch"} {
		if _, ok := m[name]; ok {
			t.Errorf("%s was emptied and is still present", name)
		}
	}
}

// Members of a later version survive if only the record has them, and if only its
// steps do.
func TestLaterVersionsMembersInOnePlace(t *testing.T) {
	t.Parallel()
	ofSteps, ofRecord := document(), document()
	delete(ofSteps, "new")
	for _, step := range ofRecord["steps"].(map[string]any) {
		delete(step.(map[string]any), "new")
	}
	for place, later := range map[string]map[string]any{"the steps": ofSteps, "the record": ofRecord} {
		want := boltstore.Seal("charge#1", doc(t, later))
		r, err := boltstore.Decode("charge#1", want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := boltstore.Encode(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: encoded again (%v):\n%s\nwant\n%s", place, err, got[5:], want[5:])
		}
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
			v.Set(reflect.ValueOf(time.UnixMilli(1_700_000_000_000 + *n).UTC()))
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
func TestEveryFieldSet(t *testing.T) {
	t.Parallel()
	var want driver.Record
	n := int64(0)
	setAll(reflect.ValueOf(&want), &n)
	want.State, want.Recovery = driver.StateInProgress, driver.Resume
	want.Steps[0].Mode, want.Steps[0].By = driver.AtMostOnce, driver.StepByEvidence
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	insert(t, s, want)
	got, err := s.Get(t.Context(), want.ID)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

// A record that could not be read again is not written. A duration that would
// round to zero, which means the default, is stored as one millisecond.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Record){
		"a negative retention":           func(r *driver.Record) { r.Retention = -1 },
		"a declared step without a name": func(r *driver.Record) { r.StepNames = []string{"pay", ""} },
		"an unknown state":               func(r *driver.Record) { r.State = 99 },
		"an unknown mode":                func(r *driver.Record) { r.Steps[0].Mode = 99 },
		"an unknown source":              func(r *driver.Record) { r.Steps[0].By = 99 },
		"a source without a result":      func(r *driver.Record) { r.Steps[0].Finished, r.Steps[0].Encoding = false, "" },
		"a result without an encoding":   func(r *driver.Record) { r.Steps[0].Encoding = "" },
		"an encoding without a result":   func(r *driver.Record) { r.Steps[0].Finished, r.Steps[0].By = false, 0 },
		"a step without a name":          func(r *driver.Record) { r.Steps[0].Name = "" },
	} {
		r := record(1, at)
		r.Steps = []driver.StepRecord{{Name: "pay", Finished: true, By: driver.StepByRun, Encoding: "json", Result: []byte("1")}}
		if _, err := boltstore.Encode(&r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		if _, err := boltstore.Encode(&r); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	r := record(1, at)
	r.Retention, r.UnresolvedRetention = time.Microsecond, math.MaxInt64
	r.Steps = []driver.StepRecord{{Name: "pay", Finished: true, Encoding: "empty"}, {Name: "ship", Result: []byte("of an earlier attempt")}}
	data, err := boltstore.Encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := boltstore.Decode(r.ID, data)
	if err != nil || got.Retention != time.Millisecond || got.UnresolvedRetention != math.MaxInt64/time.Millisecond*time.Millisecond {
		t.Errorf("got %+v, %v", got, err)
	}
	if pay, ship := got.Steps[0], got.Steps[1]; pay.Result == nil || len(pay.Result) != 0 || ship.Result != nil {
		t.Errorf("got the steps %+v", got.Steps)
	}
}

func TestEmptyResult(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	for n, result := range [][]byte{nil, {}, {0}} {
		r := record(n, time.Time{})
		r.Result = result
		insert(t, s, r)
		got, err := s.Get(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Result, result) {
			t.Errorf("got %#v, want %#v", got.Result, result)
		}
	}
}

// TestForeignExtra: Extra of another store is not written.
func TestForeignExtra(t *testing.T) {
	t.Parallel()
	r := record(1, time.Time{})
	want, err := boltstore.Encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	r.Extra = map[string]string{"a": "b"}
	if got, err := boltstore.Encode(&r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

// FuzzDecode: for every content of the file, decode returns either a record that
// encodes to the same bytes, or an error that contains no value.
func FuzzDecode(f *testing.F) {
	full := document()
	empty := maps.Clone(full)
	for _, name := range []string{"why", "att", "lease", "exp", "ct", "dt", "enc", "res", "rv", "cn", "cl", "ch", "ref", "rid", "tp", "due", "rc", "new",
		"ret", "uret", "cdc", "sn", "os", "pa", "steps", "x"} {
		delete(empty, name)
	}
	f.Add(doc(f, full))
	f.Add(doc(f, empty))
	f.Add(`{"st":"C","ST":"I"}`)
	f.Add(`{"st":"C","st":null}`)
	f.Fuzz(func(t *testing.T, body string) {
		boltstore.Decode("charge#1", []byte(body)) // an invalid header must not cause a panic either
		r, err := boltstore.Decode("charge#1", boltstore.Seal("charge#1", body))
		if err != nil {
			if len(err.Error()) > 120 {
				t.Errorf("the error is long enough to contain a value: %q", err)
			}
			return
		}
		data, err := boltstore.Encode(r)
		if err != nil {
			t.Fatalf("a record that was decoded does not encode: %v", err)
		}
		again, err := boltstore.Decode("charge#1", data)
		if err != nil {
			t.Fatalf("a record that was encoded does not decode: %v", err)
		}
		if third, err := boltstore.Encode(again); err != nil || !bytes.Equal(third, data) {
			t.Errorf("encoded twice:\n%s\n%s (%v)", data, third, err)
		}
	})
}
