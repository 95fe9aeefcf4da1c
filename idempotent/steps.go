// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

const (
	// maxStepName is the maximum length of a step name, in bytes.
	maxStepName = 64
	// maxStepResult is the maximum stored size of the result of one step, in bytes.
	maxStepResult = 64 << 10
	// maxSteps is the maximum size of all steps of a record together, in bytes. Every
	// write of the record includes them. A store holds at least 400 KB (DynamoDB), so
	// that what else a record needs always fits.
	maxSteps = 256 << 10
	// largeSteps is the size of all steps of a record above which the guard logs a
	// warning.
	largeSteps = 32 << 10
	// stepOverhead is what a step counts besides its name and its result: more than any
	// store needs for the rest of it.
	stepOverhead = 128
)

// checkStepName returns an error if the name of a step is invalid.
func checkStepName(name string) error {
	if name == "" || len(name) > maxStepName || strings.Trim(name, stepNameChars) != "" {
		return &StepError{Step: name, Problem: fmt.Sprintf("invalid name: want 1 to %d of the characters a-z, A-Z, 0-9, '-', '_', '.' and '/'", maxStepName)}
	}
	return nil
}

const stepNameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"

// decodeStep decodes the result of the finished step s of a record into the value
// that v points to. The error is a [*StoreError] if a later try may succeed, and
// otherwise a [*StepError].
func decodeStep(ctx context.Context, sealer Sealer, id RecordID, s driver.StepRecord, v any) error {
	encoding, data, err := unseal(ctx, sealer, site{id, s.Name}, s.Encoding, s.Result)
	switch {
	case errors.As(err, new(*StoreError)):
		return err
	case err != nil:
		return &StepError{Step: s.Name, Problem: fmt.Sprintf("the recorded result cannot be read: %v", err)}
	}
	data, _ = unpack(encoding, stepCodec.Name(), data) // what it returns with an error does not decode
	if stepCodec.Decode(data, v) != nil {
		return &StepError{Step: s.Name, Problem: fmt.Sprintf("the recorded result does not decode into a %s", reflect.TypeOf(v).Elem())}
	}
	return nil
}

// stepCodec encodes the results of steps, whatever the codec of the outcome: that
// codec may belong to an adapter and support only responses.
var stepCodec = &jsonCodec{}

// The functions below work on the steps of a record, which are sorted by name.
// They do not change their arguments.

// declares reports whether an operation that declared steps allows a step with
// that name.
func declares(steps []string, name string) bool {
	if len(steps) == 0 {
		return true
	}
	for _, declared := range steps {
		if rest, found := strings.CutPrefix(name, declared); found && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

func withStep(steps []driver.StepRecord, s driver.StepRecord) []driver.StepRecord {
	i, found := findStep(steps, s.Name)
	if found {
		steps = slices.Clone(steps)
		steps[i] = s
		return steps
	}
	return slices.Insert(slices.Clip(steps), i, s)
}

func withoutStep(steps []driver.StepRecord, name string) []driver.StepRecord {
	i, found := findStep(steps, name)
	if !found {
		return steps
	}
	return slices.Delete(slices.Clone(steps), i, i+1)
}

func findStep(steps []driver.StepRecord, name string) (int, bool) {
	return slices.BinarySearchFunc(steps, name, func(s driver.StepRecord, name string) int { return strings.Compare(s.Name, name) })
}

// finished reports whether the named step has a result.
func finished(steps []driver.StepRecord, name string) bool {
	i, found := findStep(steps, name)
	return found && steps[i].Finished
}

// sizeOf returns the size of steps, for [maxSteps].
func sizeOf(steps []driver.StepRecord) (n int) {
	for i := range steps {
		n += stepSize(&steps[i])
	}
	return n
}

func stepSize(s *driver.StepRecord) int { return len(s.Name) + stepOverhead + len(s.Result) }

// sameSteps reports whether two lists have the same steps with the same results.
func sameSteps(a, b []driver.StepRecord) bool {
	return slices.EqualFunc(a, b, func(a, b driver.StepRecord) bool {
		return a.Name == b.Name && a.Finished == b.Finished && a.Mode == b.Mode && a.Encoding == b.Encoding && bytes.Equal(a.Result, b.Result)
	})
}

// finishedSteps returns the steps that have a result.
func finishedSteps(steps []driver.StepRecord) []driver.StepRecord {
	var finished []driver.StepRecord
	for _, s := range steps {
		if s.Finished {
			finished = append(finished, s)
		}
	}
	return finished
}
