package idempotent

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

// StepOptions are given to [Step]. The zero value of each field is its
// documented default.
type StepOptions struct {
	// AtMostOnce makes the step run once at most: if a run of it is interrupted, or
	// ends with an error other than [NotExecuted], the record becomes unknown. The
	// store is written once before the effect and once after it. Default: false. An
	// interrupted step runs again, with the same downstream key, and the store is
	// written once, after the effect.
	AtMostOnce bool
}

// mode returns the mode as a record keeps it.
func (o *StepOptions) mode() driver.StepMode {
	if o.AtMostOnce {
		return driver.AtMostOnce
	}
	return driver.AtLeastOnce
}

const (
	// maxStepName bounds the name of a step, in bytes.
	maxStepName = 64
	// maxStepResult bounds the stored result of one step, in bytes.
	maxStepResult = 64 << 10
	// maxSteps bounds the stored results of all steps of a record together, in
	// bytes: they travel with every write of it.
	maxSteps = 256 << 10
)

// Step runs one foreign effect of a guarded handler and records its result. A
// later attempt of the same record gets that result back and does not run fn
// again: give each effect a step of its own, and let the handler between them
// have none.
//
// The name is the step's identity in the record: unique within the handler, and
// never changed while records are in flight. It is 1 to 64 of the characters
// a-z, A-Z, 0-9, '-', '_', '.' and '/'. Steps of one handler may run side by
// side; they do not nest. T has to survive JSON, and its encoding, compressed
// where that helps, may have 64 KB; that of all steps together 256 KB. Return a
// reference rather than a document.
//
// Hand [DownstreamKey] of the context that fn gets to the provider: it is what
// makes it safe to run a step again, because a crash may fall between the effect
// and the record of it.
//
// An error of fn is returned and not recorded. [Final] and [Unknown] pass through
// a step and declare for the handler; [NotExecuted] undoes the step and declares
// nothing more. Step itself returns [*StepError] for an invalid name or type, for a
// recorded result of another type, or for a result that is too large;
// [*LeaseLostError] if another request owns the record; [ErrExecutionEnded] after the handler
// has returned; and [*StoreError] if the mark of an at-most-once step could not be
// written, so that fn was not called. Under [Resume] it refuses to run a step that
// an earlier run may have begun longer than Options.DownstreamRetention ago, and
// the record becomes unknown. If the result of a step cannot be written the
// handler goes on, and the next write takes it along. If evidence finished the
// step meanwhile (see [ResolvedStep]), Step returns the recorded result.
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
	v, err = fn(context.WithValue(ctx, executionKey{}, s)) // if it panics the step stays begun
	if err != nil {
		return v, e.leaveStep(s, err)
	}
	done, err := e.finishStep(ctx, s, &v)
	if err == nil {
		err = asReplayed(stepCodec, done.Encoding, done.Result, &v)
	}
	return v, err
}

// checkStepName reports what is wrong with the name of a step.
func checkStepName(name string) error {
	if name == "" || len(name) > maxStepName || strings.Trim(name, stepNameChars) != "" {
		return &StepError{Step: name, Problem: fmt.Sprintf("has no usable name: 1 to %d of a-z, A-Z, 0-9, '-', '_', '.' and '/'", maxStepName)}
	}
	return nil
}

const stepNameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"

// declares reports whether an operation that declared these steps has one of
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

// checkRecorded reports a step in r that this code does not know. Going on
// would do again what it did, under another name.
func (o *Options) checkRecorded(r *driver.Record) error {
	for _, s := range r.Steps {
		if !declares(o.Steps, s.Name) {
			return &StepError{Step: s.Name, Problem: "is recorded and not declared in Options.Steps; deploy code that knows it, or resolve the record"}
		}
	}
	return nil
}
