// SPDX-License-Identifier: Apache-2.0

// Package errtype compares errors by their types. It is for tests.
package errtype

import (
	"errors"
	"reflect"
)

// Matches reports whether err matches the expected error want: errors.Is(err,
// want), or err or an error that it wraps has the type of want. An error of
// errors.New matches only itself.
func Matches(err, want error) bool {
	if errors.Is(err, want) {
		return true
	}
	if err == nil || want == nil || reflect.TypeOf(want) == reflect.TypeOf(errors.New("")) {
		return false
	}
	return errors.As(err, reflect.New(reflect.TypeOf(want)).Interface())
}
