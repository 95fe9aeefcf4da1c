// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/once-lambda/once/internal/logs"
)

// A line has the type of every error, and the text only of those that declare it
// safe, wherever they are in the tree.
func TestOfError(t *testing.T) {
	t.Parallel()
	own := logs.Error("once: no resolver")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("secret"), "[error_type=*errors.errorString]"},
		{own, "[error_type=logs.Error error=once: no resolver]"},
		{fmt.Errorf("secret: %w", own), "[error_type=*fmt.wrapError error=once: no resolver]"},
		{errors.Join(errors.New("secret"), own), "[error_type=*errors.joinError error=once: no resolver]"},
	} {
		if got := fmt.Sprint(logs.OfError(c.err)); got != c.want {
			t.Errorf("%v: got %s, want %s", c.err, got, c.want)
		}
	}
	if own.Error() != "once: no resolver" {
		t.Errorf("the text is %q", own.Error())
	}
}
