package driver

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// StepMode says how often a step may run.
type StepMode uint8

const (
	// AtLeastOnce runs the step again after an interruption, with the same
	// downstream key. One write, after the effect. The default.
	AtLeastOnce StepMode = iota
	// AtMostOnce never runs the step again: interrupted, or ended by any error
	// but [idempotent.NotExecuted], it makes the record unknown. One write before the
	// effect and one after it.
	AtMostOnce
)

var stepModeCodes = [...]string{AtLeastOnce: "L", AtMostOnce: "M"}

// Code returns the letter a store keeps: L or M.
func (m StepMode) Code() string {
	if int(m) >= len(stepModeCodes) {
		return "?"
	}
	return stepModeCodes[m]
}

// ParseStepMode is the inverse of [StepMode.Code]. A store fails closed on its
// error.
func ParseStepMode(code string) (StepMode, error) {
	if i := slices.Index(stepModeCodes[:], code); i >= 0 {
		return StepMode(i), nil
	}
	return 0, fmt.Errorf("idempotent: unknown step mode %q in a record", code)
}

// StepRecord is what a record keeps of one step.
type StepRecord struct {
	Name string
	// Finished: Encoding and Result are what the step returned. Otherwise it was
	// begun, and its effect may have happened.
	Finished bool
	Mode     StepMode
	Attempt  int       // the run that brought it this far
	At       time.Time // when that was
	// By is who finished the step; zero if it has not finished.
	By StepSource
	// Shape is a hash of the Go type that Result was encoded from; empty if it is
	// not known, as for evidence. A step of another shape is not replayed.
	Shape    string
	Encoding string
	Result   []byte
}

// StepSource says who finished a step.
type StepSource uint8

const (
	// StepByRun: the run that executed the step recorded its result.
	StepByRun StepSource = iota + 1
	// StepByTransaction: a transaction of the run recorded the result together
	// with writes of its own.
	StepByTransaction
	// StepByEvidence: evidence from outside, see [idempotent.ResolvedStep].
	StepByEvidence
)

var stepSourceCodes = [...]string{StepByRun: "R", StepByTransaction: "T", StepByEvidence: "E"}

// Code returns the letter a store keeps: R, T or E.
func (s StepSource) Code() string {
	if s < StepByRun || s > StepByEvidence {
		return "?"
	}
	return stepSourceCodes[s]
}

// ParseStepSource is the inverse of [StepSource.Code]. A store fails closed on
// its error.
func ParseStepSource(code string) (StepSource, error) {
	for s := StepByRun; s <= StepByEvidence; s++ {
		if stepSourceCodes[s] == code {
			return s, nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown source %q of a step in a record", code)
}

// Step returns what the record keeps of the step of that name.
func (r *Record) Step(name string) (StepRecord, bool) {
	if i, found := findStep(r.Steps, name); found {
		return r.Steps[i], true
	}
	return StepRecord{}, false
}

func findStep(steps []StepRecord, name string) (int, bool) {
	return slices.BinarySearchFunc(steps, name, func(s StepRecord, name string) int { return strings.Compare(s.Name, name) })
}

// cloneSteps returns a copy that shares no memory with steps.
func cloneSteps(steps []StepRecord) []StepRecord {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Result = slices.Clone(steps[i].Result)
	}
	return steps
}
