// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/once-lambda/once/tests/browser"
)

// chromium is the browser of all tests.
var chromium *browser.Browser

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) (code int) {
	var err error
	if chromium, err = browser.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := chromium.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}
