// SPDX-License-Identifier: Apache-2.0

package lambdadurable

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent"
)

// Step is the name of the step that starts the execution. An operation that calls
// [Run] or [Start] lists it in [idempotent.Operation.Steps].
const Step = "durable-execution"

// Client is the part of the Lambda client that this package calls. A
// *lambda.Client implements it.
type Client interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
	GetDurableExecution(
		context.Context, *lambda.GetDurableExecutionInput, ...func(*lambda.Options),
	) (*lambda.GetDurableExecutionOutput, error)
	ListDurableExecutionsByFunction(
		context.Context, *lambda.ListDurableExecutionsByFunctionInput, ...func(*lambda.Options),
	) (*lambda.ListDurableExecutionsByFunctionOutput, error)
}

// Options configure a [Function]. The zero value of each field selects its
// documented default.
type Options struct {
	// Final returns the code and the message of the Final error for an execution
	// that ended without a result. They are stored, and callers see them, so they
	// must not contain secrets. Default: the status as code, "FAILED", "TIMED_OUT" or
	// "STOPPED", and a message that does not contain the error of the execution.
	Final func(Failure) (code, message string)

	// RetryAfter is how long a caller is asked to wait while the execution is
	// running. Default: 5 s.
	RetryAfter time.Duration

	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// Failure is how an execution ended that has no result.
type Failure struct {
	Status types.ExecutionStatus // FAILED, TIMED_OUT or STOPPED
	// Type and Message are those of the error that the durable handler returned, or
	// that StopDurableExecution was called with. They are empty if there was none.
	Type    string
	Message string
}

// Function is a durable function to be started. It is safe for concurrent use.
type Function struct {
	client    Client
	qualified string // for Invoke
	whole     string // the function without its version or alias
	name      string
	opts      Options
}

// A function, version or alias, in the formats of FunctionName of the API.
var qualifiedName = regexp.MustCompile(
	`^((?:arn:[a-z-]+:lambda:[a-z0-9-]+:\d{12}:function:|\d{12}:function:)?([a-zA-Z0-9_-]{1,64})):(?:\$LATEST(?:\.PUBLISHED)?|[a-zA-Z0-9_-]{1,128})$`)

// New returns the durable function that client invokes as function: the name, the
// partial ARN or the ARN of a version or of an alias, such as "orders:live".
// Lambda does not start durable executions of a function without a version.
func New(client Client, function string, optFns ...func(*Options)) (*Function, error) {
	if client == nil {
		return nil, errors.New("lambdadurable: New: the client must not be nil")
	}
	parts := qualifiedName.FindStringSubmatch(function)
	if parts == nil {
		return nil, fmt.Errorf("lambdadurable: New: invalid function %q: want the name or the ARN of a version or an alias, such as orders:live", function)
	}
	f := &Function{client: client, qualified: function, whole: parts[1], name: parts[2]}
	for _, o := range optFns {
		o(&f.opts)
	}
	if f.opts.RetryAfter < 0 {
		return nil, errors.New("lambdadurable: New: Options.RetryAfter must not be negative")
	}
	if f.opts.RetryAfter == 0 {
		f.opts.RetryAfter = 5 * time.Second
	}
	if f.opts.Now == nil {
		f.opts.Now = time.Now
	}
	if f.opts.Final == nil {
		f.opts.Final = standardFinal
	}
	return f, nil
}

func standardFinal(e Failure) (code, message string) {
	return string(e.Status), map[types.ExecutionStatus]string{
		types.ExecutionStatusFailed:   "The durable execution failed.",
		types.ExecutionStatusTimedOut: "The durable execution timed out.",
		types.ExecutionStatusStopped:  "The durable execution was stopped.",
	}[e.Status]
}

// ExecutionName returns the name of the execution that belongs to a record, for
// tools. It has 48 characters. It is derived from the downstream key of the step
// and from the name of the function: names are unique in an account and region,
// and another function may have a record with the same key.
func (f *Function) ExecutionName(id idempotent.RecordID) string {
	sum := sha256.Sum256([]byte(id.StepKey(Step) + "\x00" + f.name))
	return "once-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// started is the result of the step.
type started struct {
	ARN string    `json:"arn"`
	At  time.Time `json:"at,omitzero"`
}

// invoke starts the execution with that name, or finds it.
func (f *Function) invoke(ctx context.Context, name string, payload []byte) (s started, err error) {
	out, err := f.client.Invoke(ctx, &lambda.InvokeInput{
		FunctionName:         &f.qualified,
		InvocationType:       types.InvocationTypeEvent,
		DurableExecutionName: &name,
		Payload:              payload,
	})
	if exists(err) {
		// Only this record leads to the name, and the guard has compared the requests.
		// So the payload is the same request in other bytes.
		if s, err = f.find(ctx, name); err == nil && s.ARN == "" {
			err = errors.New("the execution exists, and Lambda does not list it; try again")
		}
	}
	switch {
	case err != nil:
		return started{}, fmt.Errorf("lambdadurable: start an execution of %s: %w", f.name, err)
	case s.ARN != "":
		return s, nil
	case aws.ToString(out.DurableExecutionArn) == "":
		return started{}, idempotent.Unknown(fmt.Errorf("lambdadurable: start an execution of %s: Lambda accepted the event and returned no DurableExecutionArn; is the function durable?", f.name))
	}
	return started{*out.DurableExecutionArn, f.opts.Now()}, nil
}

// exists reports whether Lambda refused to start an execution because there is one
// with this name and another payload. The developer guide and the API reference
// differ in the name of the error: DurableExecutionAlreadyExists, and
// DurableExecutionAlreadyStartedException.
func exists(err error) bool {
	refused, ok := errors.AsType[smithy.APIError](err)
	return ok && strings.HasPrefix(refused.ErrorCode(), "DurableExecutionAlready")
}

// find returns the newest execution with that name, or nothing if none is listed. That
// proves nothing: an execution may have been accepted and not be listed yet, or its
// history may have expired.
func (f *Function) find(ctx context.Context, name string) (started, error) {
	pages := lambda.NewListDurableExecutionsByFunctionPaginator(f.client, &lambda.ListDurableExecutionsByFunctionInput{
		FunctionName: &f.whole, DurableExecutionName: &name, // of all versions, the newest first
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return started{}, fmt.Errorf("lambdadurable: list the executions of %s: %w", f.name, err)
		}
		for _, e := range page.DurableExecutions {
			if aws.ToString(e.DurableExecutionName) == name {
				return started{aws.ToString(e.DurableExecutionArn), aws.ToTime(e.StartTimestamp)}, nil
			}
		}
	}
	return started{}, nil
}

// ended is the outcome of an execution.
type ended struct {
	result  []byte // JSON; nil after a failure
	failure Failure
}

// ask returns the outcome of an execution, or nil while it is running. An error that
// declares the outcome unknown means that Lambda has no such execution.
func (f *Function) ask(ctx context.Context, s started) (*ended, error) {
	// The data can have megabytes, of which a running execution has only its input.
	out, err := f.get(ctx, s, false)
	if err != nil || out.Status == types.ExecutionStatusRunning {
		return nil, err
	}
	if out, err = f.get(ctx, s, true); err != nil {
		return nil, err
	}
	succeeded, included := out.Status == types.ExecutionStatusSucceeded, out.ExecutionDataIncluded
	if included != nil && !*included || included == nil && succeeded && out.Result == nil {
		return nil, fmt.Errorf("lambdadurable: ask about an execution of %s: it ended (%s), and Lambda left the data out of its reply; try again", f.name, out.Status)
	}
	switch out.Status {
	case types.ExecutionStatusSucceeded:
		return &ended{result: []byte(cmp.Or(aws.ToString(out.Result), "null"))}, nil
	case types.ExecutionStatusFailed, types.ExecutionStatusTimedOut, types.ExecutionStatusStopped:
		e := &ended{failure: Failure{Status: out.Status}}
		if out.Error != nil {
			e.failure.Type, e.failure.Message = aws.ToString(out.Error.ErrorType), aws.ToString(out.Error.ErrorMessage)
		}
		return e, nil
	case types.ExecutionStatusRunning:
	}
	return nil, fmt.Errorf("lambdadurable: ask about an execution of %s: unknown status %q", f.name, out.Status)
}

// leastRetention is the shortest time for which Lambda has an execution after it
// ended, and so after it was started.
const leastRetention = 24 * time.Hour

// get asks Lambda for an execution. One that does not exist, soon after it was
// started, counts as running: it is in Lambda's queue, or is not visible yet.
func (f *Function) get(ctx context.Context, s started, data bool) (*lambda.GetDurableExecutionOutput, error) {
	out, err := f.client.GetDurableExecution(ctx, &lambda.GetDurableExecutionInput{DurableExecutionArn: &s.ARN, IncludeExecutionData: &data})
	_, missing := errors.AsType[*types.ResourceNotFoundException](err)
	switch {
	case missing && f.opts.Now().Sub(s.At) < leastRetention:
		return &lambda.GetDurableExecutionOutput{Status: types.ExecutionStatusRunning}, nil
	case missing:
		err = idempotent.Unknown(errors.New("no such execution exists: its retention has ended, or its start was discarded"))
	}
	if err != nil {
		return nil, fmt.Errorf("lambdadurable: ask about an execution of %s: %w", f.name, err)
	}
	return out, nil
}

// decode decodes the result of an execution. A type that cannot be null does not
// accept a missing result: its zero value would count as the outcome.
func decode[T any](f *Function, result []byte) (v T, err error) {
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
	default:
		if string(bytes.TrimSpace(result)) == "null" && t != reflect.TypeFor[struct{}]() {
			return v, fmt.Errorf("lambdadurable: an execution of %s succeeded without a result, and a %s needs one; if the function returns no result, use struct{} or a pointer", f.name, t)
		}
	}
	if err := json.Unmarshal(result, &v); err != nil {
		return v, fmt.Errorf("lambdadurable: the result of an execution of %s does not decode into a %s", f.name, t)
	}
	return v, nil
}
