package idempotent

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

// StepOptions configure a [Step]. The zero value of each field selects its
// documented default.
type StepOptions struct {
	// AtMostOnce runs the step at most once: if a run of it is interrupted, or ends
	// with an error other than [NotExecuted], the record becomes unknown. The store
	// is written once before the effect and once after it. Default: false. An
	// interrupted step then runs again with the same downstream key, and the store
	// is written once, after the effect.
	AtMostOnce bool
}

// mode returns the mode as stored in a record.
func (o *StepOptions) mode() driver.StepMode {
	if o.AtMostOnce {
		return driver.AtMostOnce
	}
	return driver.AtLeastOnce
}

const (
	// maxStepName is the maximum length of a step name, in bytes.
	maxStepName = 64
	// maxStepResult is the maximum stored size of the result of one step, in bytes.
	maxStepResult = 64 << 10
	// maxSteps is the maximum stored size of the results of all steps of a record
	// together, in bytes. Every write of the record includes them.
	maxSteps = 256 << 10
)

// Step runs one external effect of a guarded handler and records its result. A
// later attempt of the same record gets that result and does not run fn again.
// Put each effect in its own step, and have no effects between steps.
//
// The name identifies the step in the record. It must be unique within the
// handler and must not change while records are in flight. It has 1 to 64 of the
// characters a-z, A-Z, 0-9, '-', '_', '.' and '/'. Steps of one handler may run
// concurrently; they cannot be nested. T must survive a JSON round trip. Its
// encoding, compressed if that makes it smaller, may have up to 64 KB, and the
// encodings of all steps together up to 256 KB. Return a reference rather than a
// document.
//
// Pass the [DownstreamKey] of fn's context to the provider. It makes it safe to
// run a step again after a crash between the effect and its recording.
//
// Step returns an error of fn and does not record it. [Final] and [Unknown] in
// that error also count for the handler; [NotExecuted] means only that the step
// had no effect. Step itself returns
//   - [*StepError] for an invalid name or type, for a recorded result of another
//     type, or for a result that is too large;
//   - [*LeaseLostError] if another request owns the record;
//   - [ErrExecutionEnded] after the handler has returned;
//   - [*StoreError] if an at-most-once step could not be marked as begun, in
//     which case fn was not called.
//
// Under [Resume], Step refuses to run a step that an earlier run may have begun
// longer than Options.DownstreamRetention ago, and the record becomes unknown. If
// the result of a step cannot be written, the handler continues, and the next
// write includes the result. If evidence finished the step meanwhile (see
// [ResolvedStep]), Step returns the recorded result.
//
// Outside a guarded handler fn runs without a record, and a warning is logged
// once per process.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error), optFns ...func(*StepOptions)) (T, error) {
	var v T
	e, ok := FromContext(ctx)
	if !ok {
		warnOutside(ctx, "Step")
		return fn(ctx)
	}
	var o StepOptions
	for _, f := range optFns {
		f(&o)
	}
	s, recorded, err := e.beginStep(ctx, name, o, true, reflect.TypeFor[T]())
	switch {
	case err != nil:
		return v, err
	case recorded != nil:
		return v, e.replayStep(ctx, *recorded, &v)
	}
	v, err = fn(context.WithValue(ctx, executionKey{}, s)) // if it panics, the step counts as begun
	if err != nil {
		return v, e.leaveStep(s, err)
	}
	done, err := e.finishStep(ctx, s, &v)
	_ = asReplayed(stepCodec, done.Encoding, done.Result, &v) // a recorded result decodes
	return v, err
}

// checkStepName returns an error if the name of a step is invalid.
func checkStepName(name string) error {
	if name == "" || len(name) > maxStepName || strings.Trim(name, stepNameChars) != "" {
		return &StepError{Step: name, Problem: fmt.Sprintf("invalid name: want 1 to %d of the characters a-z, A-Z, 0-9, '-', '_', '.' and '/'", maxStepName)}
	}
	return nil
}

const stepNameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"

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

// checkRecorded returns an error if r contains a step that this code does not
// declare. Continuing could repeat that step's effect under another name.
func (o *Options) checkRecorded(r *driver.Record) error {
	for _, s := range r.Steps {
		if !declares(o.Steps, s.Name) {
			return &StepError{Step: s.Name, Problem: "recorded but not declared in Options.Steps; deploy code that declares it, or resolve the record"}
		}
	}
	return nil
}
