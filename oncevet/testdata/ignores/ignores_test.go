// SPDX-License-Identifier: Apache-2.0

package ignores

import (
	"testing"

	"github.com/once-lambda/once/dynamostore"
)

//oncevet:ignore joined nothing is checked here
func TestCommit(t *testing.T) { _ = dynamostore.Commit(t.Context(), "done") }
