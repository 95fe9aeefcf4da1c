// SPDX-License-Identifier: Apache-2.0

package ignores

import (
	"testing"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

//oncevet:ignore joined nothing is checked here
func TestCommit(t *testing.T) { _ = dynamostore.Commit(t.Context(), "done") }

func TestHandler(t *testing.T) {
	idempotent.Wrap(nil, nil, handler, func(o *idempotent.Operation) { o.Recovery = idempotent.Resume })
}
