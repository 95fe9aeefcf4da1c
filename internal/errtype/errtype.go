// Package errtype compares errors by their types. It is for tests.
package errtype

import (
	"errors"
	"reflect"
)

// Matches reports whether err is the error that a test wants: errors.Is(err, want),
// or err, or an error that it wraps, has the type of want. An error of errors.New
// matches itself only.
func Matches(err, want error) bool {
	if errors.Is(err, want) {
		return true
	}
	if err == nil || want == nil || reflect.TypeOf(want) == reflect.TypeOf(errors.New("")) {
		return false
	}
	return errors.As(err, reflect.New(reflect.TypeOf(want)).Interface())
}
