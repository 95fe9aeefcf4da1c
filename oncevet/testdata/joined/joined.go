// SPDX-License-Identifier: Apache-2.0

package joined

import (
	"errors"
	"fmt"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
)

var errClosed = errors.New("closed")

func direct(err error) error {
	return errors.Join(err, idempotent.Final("declined", "The card was declined.")) // want `joined: Final does not count among several errors`
}

func refuse(err error) error { return idempotent.NotExecuted(err) }

func acrossFunction(err error) error {
	return errors.Join(errClosed, refuse(err)) // want `joined: NotExecuted counts only as the outermost error`
}

func acrossPackage(err error) error {
	return fmt.Errorf("%w: %w", err, provider.Declined()) // want `joined: Final does not count`
}

func wrapped(err error) error {
	if err != nil {
		err = idempotent.NotExecuted(err)
		return fmt.Errorf("pay: %w", err) // want `joined: NotExecuted counts only`
	}
	return fmt.Errorf("pay: %w", provider.Declined()) // one %w preserves Final
}

func right(err error) error {
	if err != nil {
		return idempotent.NotExecuted(errors.Join(err, errClosed))
	}
	return idempotent.Unknown(errors.Join(err, errClosed))
}

func unknown(err error) error { return errors.Join(errClosed, idempotent.Unknown(err)) } // counts anywhere

func maybe(err error) error {
	if err != nil {
		return idempotent.NotExecuted(err)
	}
	return nil
}

func read(err error) (string, error) {
	if err == nil {
		return "", nil
	}
	return "", idempotent.Final("declined", "Declined.")
}

func more(err error) []error {
	_, final := read(err)
	either := final
	if err == nil {
		either = unknown(err)
	}
	return []error{
		errors.Join(errClosed, maybe(err)),                 // want `joined: NotExecuted counts only`
		errors.Join(errClosed, either),                     // want `joined: `
		errors.Join(errClosed, final),                      // want `joined: Final does not count`
		fmt.Errorf("pay: %v", idempotent.NotExecuted(err)), // it is text
		fmt.Errorf("pay: %w %d", final, len("x")),
		errors.Join(errClosed, fmt.Errorf("pay: %w", err)),
	}
}
