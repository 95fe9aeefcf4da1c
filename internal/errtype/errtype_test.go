// SPDX-License-Identifier: Apache-2.0

package errtype_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/once-lambda/once/internal/errtype"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	a, b := errors.New("a"), errors.New("b")
	open := &fs.PathError{Op: "open", Err: a}
	for i, row := range []struct {
		err, want error
		matches   bool
	}{
		{nil, nil, true}, {a, nil, false}, {nil, a, false},
		{a, a, true}, {a, b, false}, {fmt.Errorf("c: %w", a), a, true},
		{open, new(fs.PathError), true}, {fmt.Errorf("c: %w", open), new(fs.PathError), true}, {a, new(fs.PathError), false},
	} {
		if got := errtype.Matches(row.err, row.want); got != row.matches {
			t.Errorf("row %d: Matches(%v, %v) = %v", i, row.err, row.want, got)
		}
	}
}
