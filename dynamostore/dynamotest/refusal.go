// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// refusal is an error of DynamoDB on its way to call, as a panic.
type refusal struct{ error }

// refuse ends the call with a ValidationException, for which the SDK has no type.
func refuse(format string, args ...any) {
	panic(refusal{&smithy.GenericAPIError{Code: "ValidationException", Message: fmt.Sprintf(format, args...), Fault: smithy.FaultClient}})
}

// unsupported ends the call because this package does not implement what was asked.
func unsupported(what string) refusal {
	return refusal{errors.New("dynamotest does not implement " + what)}
}

// call runs one operation under the lock, if every parameter is among the names in
// known. It returns a refusal as the SDK does.
func call[I, O any](ctx context.Context, lock sync.Locker, operation string, in *I, known string, do func(in *I) *O) (out *O, err error) {
	defer func() { err = asTheSDK(operation, err) }()
	if err := ctx.Err(); err != nil {
		return nil, &smithy.CanceledError{Err: err}
	}
	lock.Lock()
	defer lock.Unlock()
	err = catch(func() {
		onlyKnown(operation, in, known)
		out = do(in)
	})
	return out, err
}

// asTheSDK returns an error of an operation as the SDK does: a refusal has a response.
func asTheSDK(operation string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[smithy.APIError](err); ok {
		response := &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}}
		err = &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: response}, Err: err}
	}
	return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: operation, Err: err}
}

// catch runs f and returns its refusal.
func catch(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case refusal:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// onlyKnown refuses a struct of the SDK with a field that is set and not known.
func onlyKnown(what string, in any, known string) {
	v := reflect.ValueOf(in)
	if v.IsNil() {
		refuse("%s: missing input", what)
	}
	for _, i := range unknownFields(v.Elem().Type(), known) {
		if !v.Elem().Field(i).IsZero() {
			panic(unsupported(what + " with " + v.Elem().Type().Field(i).Name))
		}
	}
}

// unknownFields returns the exported fields of a struct that are not among the known ones.
func unknownFields(t reflect.Type, known string) (fields []int) {
	type structAnd struct {
		t     reflect.Type
		known string
	}
	if cached, ok := unknown.Load(structAnd{t, known}); ok {
		return cached.([]int)
	}
	names := strings.Fields(known)
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && !slices.Contains(names, f.Name) {
			fields = append(fields, i)
		}
	}
	unknown.Store(structAnd{t, known}, fields)
	return fields
}

var unknown sync.Map // the results of unknownFields
