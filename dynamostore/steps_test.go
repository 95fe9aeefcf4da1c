package dynamostore_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

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
		if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
			t.Fatal(met, err)
		}
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
		if _, err := newStore(t, fake).Insert(t.Context(), r, at(0)); err == nil || !strings.Contains(err.Error(), "invalid step") || len(fake.puts) != 0 {
			t.Errorf("%s: %v after %d puts", name, err, len(fake.puts))
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
		if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
			t.Fatal(met, err)
		}
		fake.change(string(r.ID), c.damage)
		if got, err := s.Get(t.Context(), r.ID); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, %v, want an error that says %q", name, got, err, c.says)
		}
	}
}
