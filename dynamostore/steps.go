package dynamostore

import (
	"cmp"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// The steps of a record are a map by their names, of maps with these
// attributes. The last two are there if the step has finished.
const (
	stepMode     = "m" // how often it may run
	stepAttempt  = "a" // the run that brought it this far
	stepAt       = "t" // when that was, in milliseconds since 1970
	stepEncoding = "e"
	stepResult   = "r"
)

func encodeSteps(steps []driver.StepRecord) (*types.AttributeValueMemberM, error) {
	m := make(item, len(steps))
	for i := range steps {
		s := &steps[i]
		mode := s.Mode.Code()
		if _, err := driver.ParseStepMode(mode); err != nil || s.Name == "" || s.Finished != (s.Encoding != "") {
			return nil, errors.New("dynamostore: a step of the record has no name, no mode that exists, or a result without an encoding")
		}
		it := item{stepMode: text(mode), stepAttempt: number(int64(s.Attempt))}
		putTime(it, stepAt, s.At)
		if s.Finished {
			it[stepEncoding] = text(s.Encoding)
			it[stepResult] = &types.AttributeValueMemberB{Value: s.Result}
		}
		m[s.Name] = &types.AttributeValueMemberM{Value: it}
	}
	return &types.AttributeValueMemberM{Value: m}, nil
}

// steps reads the steps of a record, in the order of their names.
func (d *decoder) steps() (steps []driver.StepRecord) {
	if d.item[attrSteps] == nil {
		return nil
	}
	m, ok := d.item[attrSteps].(*types.AttributeValueMemberM)
	if !ok {
		d.fail(attrSteps, "is not a map")
		return nil
	}
	for name, value := range m.Value {
		it, ok := value.(*types.AttributeValueMemberM)
		if !ok {
			d.fail(attrSteps, "has something in it that is not a step")
			return nil
		}
		inner := decoder{kind: d.kind + "'s step", item: it.Value}
		s := driver.StepRecord{
			Name:     name,
			Finished: it.Value[stepEncoding] != nil,
			Attempt:  int(inner.number(stepAttempt, required)),
			At:       inner.time(stepAt, optional),
			Encoding: inner.text(stepEncoding, optional),
			Result:   inner.bytes(stepResult, optional),
		}
		var err error
		if s.Mode, err = driver.ParseStepMode(inner.text(stepMode, required)); err != nil {
			inner.fail(stepMode, fromLater)
		}
		if s.Finished != (s.Result != nil) {
			inner.fail(stepResult, "is there without an encoding, or is missing")
		}
		if d.err == nil {
			d.err = inner.err
		}
		steps = append(steps, s)
	}
	slices.SortFunc(steps, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
	return steps
}
