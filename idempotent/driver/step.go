// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// StepMode is how often a step may run.
type StepMode uint8

const (
	// AtLeastOnce runs the step again after an interruption, with the same
	// downstream key. The store is written once, after the effect. This is the
	// default.
	AtLeastOnce StepMode = iota
	// AtMostOnce never runs the step again. If the step is interrupted, or ends with
	// an error other than idempotent.NotExecuted, the record becomes unknown. The
	// store is written once before the effect and once after it.
	AtMostOnce
)

var stepModeCodes = [...]string{AtLeastOnce: "L", AtMostOnce: "M"}

// Code returns the letter that stores use for the mode: L or M.
func (m StepMode) Code() string {
	if int(m) >= len(stepModeCodes) {
		return "?"
	}
	return stepModeCodes[m]
}

// ParseStepMode is the inverse of [StepMode.Code]. A store must fail closed on
// its error.
func ParseStepMode(code string) (StepMode, error) {
	if i := slices.Index(stepModeCodes[:], code); i >= 0 {
		return StepMode(i), nil
	}
	return 0, fmt.Errorf("idempotent: unknown step mode %q in a record", code)
}

// StepRecord is the stored state of one step.
type StepRecord struct {
	Name string
	// Finished reports that Encoding and Result hold what the step returned. If it
	// is false, the step has begun and its effect may have happened.
	Finished bool
	Mode     StepMode
	Attempt  int       // the run that last changed the step
	At       time.Time // time of that change
	// By is the source of the result; zero if the step has not finished.
	By StepSource
	// Shape is a hash of the Go type that Result was encoded from; empty if the type
	// is not known, as for evidence. A step with another shape is not replayed.
	Shape    string
	Encoding string
	Result   []byte
}

// StepSource is who finished a step.
type StepSource uint8

const (
	// StepByRun means that the run that executed the step recorded its result.
	StepByRun StepSource = iota + 1
	// StepByTransaction means that a transaction of the run recorded the result
	// together with its own writes.
	StepByTransaction
	// StepByEvidence means external evidence, see idempotent.ResolvedStep.
	StepByEvidence
)

var stepSourceCodes = [...]string{StepByRun: "R", StepByTransaction: "T", StepByEvidence: "E"}

// Code returns the letter that stores use for the source: R, T or E.
func (s StepSource) Code() string {
	if s < StepByRun || s > StepByEvidence {
		return "?"
	}
	return stepSourceCodes[s]
}

// ParseStepSource is the inverse of [StepSource.Code]. A store must fail closed
// on its error.
func ParseStepSource(code string) (StepSource, error) {
	for s := StepByRun; s <= StepByEvidence; s++ {
		if stepSourceCodes[s] == code {
			return s, nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown source %q of a step in a record", code)
}

// Sealed reports whether only an idempotent.Sealer can read the result of s.
func (s *StepRecord) Sealed() bool { return strings.HasSuffix(s.Encoding, EncodingSealed) }

// Step returns the stored state of the named step.
func (r *Record) Step(name string) (StepRecord, bool) {
	if i, found := findStep(r.Steps, name); found {
		return r.Steps[i], true
	}
	return StepRecord{}, false
}

func findStep(steps []StepRecord, name string) (int, bool) {
	return slices.BinarySearchFunc(steps, name, func(s StepRecord, name string) int { return strings.Compare(s.Name, name) })
}
