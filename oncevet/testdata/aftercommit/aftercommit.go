// SPDX-License-Identifier: Apache-2.0

package aftercommit

import (
	"context"
	"errors"

	"example.com/vet/provider"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

func direct(ctx context.Context, o provider.Order) error {
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		return err
	}
	_, err := provider.Pay(ctx, o) // want `aftercommit: Client.Do \(provider.go:\d+\) follows Commit`
	return err
}

func save(ctx context.Context) error {
	err := dynamostore.Commit(ctx, "done")
	if errors.As(err, new(*dynamostore.ConditionError)) {
		return idempotent.Final("exists", "The order exists.")
	}
	return err
}

func acrossFunction(ctx context.Context, o provider.Order) error {
	if err := save(ctx); err != nil {
		return err
	}
	_, err := idempotent.Step(ctx, "mail", mail) // want `aftercommit: a step after Commit never runs`
	return err
}

func acrossPackage(ctx context.Context, o provider.Order) error {
	if err := provider.Save(ctx, "done"); err != nil {
		return err
	}
	return provider.PayWithKey(ctx, o) // want `aftercommit: `
}

func inGoroutine(ctx context.Context, o provider.Order) error {
	go dynamostore.Commit(ctx, "done") // want `ignored: the error of Commit is ignored`
	_, err := provider.Pay(ctx, o)
	return err
}

func execution(ctx context.Context, o provider.Order) error {
	e, _ := idempotent.FromContext(ctx)
	if err := e.Commit(ctx, "done", e.Store().Replace); err != nil {
		return err
	}
	_, err := provider.Pay(ctx, o) // want `aftercommit: `
	return err
}

func mail(context.Context) (string, error) { return "m_1", nil }

func right(ctx context.Context, o provider.Order) error {
	if _, err := dynamostore.CommitStep(ctx, "order", "done"); err != nil {
		return err
	}
	if _, err := idempotent.Step(ctx, "mail", mail); err != nil {
		return err
	}
	err := dynamostore.Commit(ctx, "done")
	if errors.As(err, new(*dynamostore.ConditionError)) {
		_, err := provider.Pay(ctx, o) // nothing was committed: this undoes the payment
		return err
	}
	if _, refused := err.(*dynamostore.ConditionError); refused {
		_, err := provider.Pay(ctx, o)
		return err
	}
	if err != nil {
		_, failed := provider.Pay(ctx, o)
		return errors.Join(err, failed)
	}
	_, err = provider.Find(ctx, o)
	return err
}

func deferred(ctx context.Context, o provider.Order) error {
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		return err
	}
	defer provider.Pay(ctx, o)
	return nil
}

func branches(ctx context.Context, o provider.Order, other error) error {
	err := dynamostore.Commit(ctx, "done")
	if other != nil {
		_, err = provider.Pay(ctx, o) // want `aftercommit: `
		return err
	}
	if _, refused := other.(*dynamostore.ConditionError); refused {
		_, err = provider.Pay(ctx, o) // want `aftercommit: `
		return err
	}
	if errors.Is(other, errClosed) {
		_, err = provider.Pay(ctx, o) // want `aftercommit: `
		return err
	}
	if _, refused := errors.AsType[*dynamostore.ConditionError](err); refused {
		_, err = provider.Pay(ctx, o)
		return err
	}
	if nil == err {
		return nil
	}
	_, failed := provider.Pay(ctx, o)
	return errors.Join(err, failed)
}

var errClosed = errors.New("closed")

func commitIn(ctx context.Context, o provider.Order) *provider.Order {
	if dynamostore.Commit(ctx, "done") == nil {
		return &o
	}
	return nil
}

func commitOr(ctx context.Context, o provider.Order) (refused error, committed *provider.Order) {
	return errClosed, commitIn(ctx, o)
}

func otherResult(ctx context.Context, o provider.Order) {
	if committed := commitIn(ctx, o); committed != nil {
		if o.ID == "" {
			o.ID = "a"
		} else {
			o.ID = "b"
		}
		provider.Pay(ctx, o) // want `aftercommit: `
	}
}

func severalResults(ctx context.Context, o provider.Order) {
	refused, committed := commitOr(ctx, o)
	if refused != nil {
		provider.Pay(ctx, o) // want `aftercommit: `
	} else if committed != nil {
		provider.Pay(ctx, o) // want `aftercommit: `
	}
}

func payAndCommit(ctx context.Context, o provider.Order) error {
	if _, err := provider.Pay(ctx, o); err != nil {
		return err
	}
	return dynamostore.Commit(ctx, "done")
}

func inLoop(ctx context.Context, orders []provider.Order) error {
	for _, o := range orders {
		if err := payAndCommit(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
