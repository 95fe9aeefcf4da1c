// SPDX-License-Identifier: Apache-2.0

package ignores

import (
	"context"
	"net/http"

	"github.com/once-lambda/once/dynamostore"
)

func accepted(ctx context.Context) {
	//oncevet:ignore ignored the record is settled by a test of its reader
	_ = dynamostore.Commit(ctx, "done")
	_ = dynamostore.Commit(ctx, "done") //oncevet:ignore ignored the same
}

func otherCheck(ctx context.Context) {
	//oncevet:ignore ignored the reason is not for this check
	go dynamostore.Commit(ctx, "done")
	_ = dynamostore.Commit(ctx, "done") /* want `ignored: ` */ //
	/* want `ignore: there is no stepname finding here` */ //oncevet:ignore stepname the reason
}

func refused(ctx context.Context) {
	/* want `ignore: a comment without a reason ignores nothing` */ //oncevet:ignore ignored
	_ = dynamostore.Commit(ctx, "done")                             // want `ignored: `
	/* want `ignore: unknown check "ignoring"` */ //oncevet:ignore ignoring because
	/* want `ignore: there is no joined finding here` */ //oncevet:ignore joined the reason
}

// handler has the recovery Resume only in a test.
func handler(_ context.Context, id string) (string, error) {
	_, err := http.Post("https://bank.test/"+id, "", nil)
	return "", err
}
