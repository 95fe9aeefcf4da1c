// SPDX-License-Identifier: Apache-2.0

// Package errtype finds errors by their types.
package errtype

import (
	"errors"
	"reflect"
)

// InnerError is an error of an inner guarded call, or of a step that returned NotExecuted.
// It declares nothing for the operation around it.
type InnerError struct{ Err error }

func (e *InnerError) Error() string { return e.Err.Error() }

func (e *InnerError) Unwrap() error { return e.Err }

// Declared returns the T that err, as returned by a handler, declares: err itself, or
// an error that it wraps, each time with a single %w. A joined error declares none,
// because the other errors count too, and neither does an [InnerError].
func Declared[T error](err error) (declared T, ok bool) {
	switch e := err.(type) { //lint:ignore errorlint it walks the tree itself
	case T:
		return e, true
	case *InnerError:
	case interface{ Unwrap() error }:
		return Declared[T](e.Unwrap())
	}
	return declared, false
}

// Matches reports whether err matches the expected error want: errors.Is(err,
// want), or err or an error that it wraps has the type of want. An error of
// errors.New matches only itself. It is for tests.
func Matches(err, want error) bool {
	if errors.Is(err, want) {
		return true
	}
	if err == nil || want == nil || reflect.TypeOf(want) == reflect.TypeOf(errors.New("")) {
		return false
	}
	return errors.As(err, reflect.New(reflect.TypeOf(want)).Interface())
}
