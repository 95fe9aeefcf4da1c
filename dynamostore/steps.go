package dynamostore

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// The steps of a record are a map from their names to maps with these attributes.
// The last four are missing if zero. The result and its encoding are present if
// the step has finished.
const (
	stepMode     = "m" // how often the step may run
	stepAttempt  = "a" // the attempt that stored this state
	stepAt       = "t" // when that was, in milliseconds since 1970
	stepBy       = "b" // the source of its result
	stepShape    = "s" // of the result's type
	stepEncoding = "e"
	stepResult   = "r"
)

// knownInStep reports whether this version writes the named attribute of a step
// itself.
func knownInStep(name string) bool {
	switch name {
	case stepMode, stepAttempt, stepAt, stepBy, stepShape, stepEncoding, stepResult:
		return true
	}
	return false
}

// encodeSteps returns the steps, each with the attributes that a later version had
// written into the step of the same name.
func encodeSteps(steps []driver.StepRecord, carried map[string]item) (*types.AttributeValueMemberM, error) {
	m := make(item, len(steps))
	for i := range steps {
		s := &steps[i]
		mode := s.Mode.Code()
		if _, err := driver.ParseStepMode(mode); err != nil || s.Name == "" || s.Finished != (s.Encoding != "") {
			return nil, errors.New("dynamostore: invalid step: no name, an unknown mode, or a result without an encoding")
		}
		it := item{}
		maps.Copy(it, carried[s.Name])
		it[stepMode] = text(mode)
		it[stepAttempt] = number(int64(s.Attempt))
		putTime(it, stepAt, s.At)
		putText(it, stepShape, s.Shape)
		if s.By != 0 {
			by := s.By.Code()
			if _, err := driver.ParseStepSource(by); err != nil || !s.Finished {
				return nil, errors.New("dynamostore: invalid step: unknown source, or a source without a result")
			}
			it[stepBy] = text(by)
		}
		if s.Finished {
			it[stepEncoding] = text(s.Encoding)
			it[stepResult] = &types.AttributeValueMemberB{Value: append([]byte{}, s.Result...)} // nil would be sent as null
		}
		m[s.Name] = &types.AttributeValueMemberM{Value: it}
	}
	return &types.AttributeValueMemberM{Value: m}, nil
}

// steps reads the steps of a record, in the order of their names, and the
// attributes that a later version wrote into them.
func (d *decoder) steps() (steps []driver.StepRecord, rest map[string]item) {
	if d.item[attrSteps] == nil {
		return nil, nil
	}
	m, ok := d.item[attrSteps].(*types.AttributeValueMemberM)
	if !ok {
		d.fail(attrSteps, "is not a map")
		return nil, nil
	}
	for name, value := range m.Value {
		it, ok := value.(*types.AttributeValueMemberM)
		if !ok || name == "" {
			d.fail(attrSteps, "contains a value that is not a step")
			return nil, nil
		}
		inner := decoder{kind: d.kind + "'s step", item: it.Value}
		s := driver.StepRecord{
			Name:     name,
			Finished: it.Value[stepEncoding] != nil,
			Attempt:  int(inner.number(stepAttempt, required)),
			At:       inner.time(stepAt, optional),
			Shape:    inner.text(stepShape, optional),
			Encoding: inner.text(stepEncoding, optional),
			Result:   inner.bytes(stepResult, optional),
		}
		var err error
		if s.Mode, err = driver.ParseStepMode(inner.text(stepMode, required)); err != nil {
			inner.fail(stepMode, fromLater)
		}
		if s.Finished != (s.Result != nil) {
			inner.fail(stepResult, "is present without an encoding, or missing")
		}
		if it.Value[stepBy] != nil {
			if s.By, err = driver.ParseStepSource(inner.text(stepBy, required)); err != nil {
				inner.fail(stepBy, fromLater)
			}
			if !s.Finished {
				inner.fail(stepBy, "is present without a result")
			}
		}
		if d.err == nil {
			d.err = inner.err
		}
		steps = append(steps, s)
		if unknown := unknown(it.Value, knownInStep); unknown != nil {
			if rest == nil {
				rest = map[string]item{}
			}
			rest[name] = unknown
		}
	}
	slices.SortFunc(steps, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
	return steps, rest
}
