// SPDX-License-Identifier: Apache-2.0

package notexecuted

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/smtp"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"example.com/vet/provider"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

var errNotSent = errors.New("no connection")

func direct(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test", nil)
	if err != nil {
		return idempotent.NotExecuted(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Client.Do \(notexecuted.go:\d+\), which may have had its effect`
	}
	var answer struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: `
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		return idempotent.NotExecuted(errors.New("the provider refused the request"))
	}
	return nil
}

func reads(ctx context.Context, o provider.Order) error {
	if _, err := http.Get("https://bank.test"); err != nil {
		return idempotent.NotExecuted(err)
	}
	if _, err := provider.Find(ctx, o); err != nil {
		return idempotent.NotExecuted(err)
	}
	return nil
}

func pay(ctx context.Context, o provider.Order, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE sku = ?", o.ID)
	return err
}

func acrossFunction(ctx context.Context, o provider.Order, db *sql.DB) error {
	if err := pay(ctx, o, db); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows DB.ExecContext`
	}
	return nil
}

func acrossPackage(ctx context.Context, o provider.Order) (string, error) {
	id, err := provider.Pay(ctx, o)
	if err != nil {
		return "", idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Client.Do \(provider.go:\d+\)`
	}
	return id, nil
}

type table interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

func sdk(ctx context.Context, db table, exists *dynamodb.TableExistsWaiter) error {
	if err := exists.Wait(ctx, &dynamodb.DescribeTableInput{}, time.Minute); err != nil {
		return idempotent.NotExecuted(err)
	}
	if _, err := db.GetItem(ctx, &dynamodb.GetItemInput{}); err != nil {
		return idempotent.NotExecuted(err)
	}
	_, err := db.PutItem(ctx, &dynamodb.PutItemInput{})
	if err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows table.PutItem`
	}
	return nil
}

func commit(ctx context.Context) error {
	err := dynamostore.Commit(ctx, "done")
	if errors.As(err, new(*dynamostore.ConditionError)) {
		return idempotent.NotExecuted(err)
	}
	if errors.Is(err, idempotent.ErrNotApplied) {
		return idempotent.NotExecuted(err)
	}
	return err
}

func uncheckedCommit(ctx context.Context) error {
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Commit`
	}
	return nil
}

// The first order is sent before the second one is checked.
func query(ctx context.Context, db *sql.DB) error {
	if _, err := db.QueryContext(ctx, "SELECT 1"); nil != err {
		return idempotent.NotExecuted(err)
	}
	if err := db.QueryRowContext(ctx, "insert INTO stock VALUES (1) RETURNING id").Scan(new(int)); nil != err {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows DB.QueryRowContext`
	}
	return nil
}

func mails() error {
	err := smtp.SendMail("mail.test:25", nil, "a@mail.test", nil, nil)
	if err == nil {
		return nil
	}
	return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows SendMail`
}

func inLoop(ctx context.Context, orders []provider.Order) error {
	for {
		if err := validate(orders); err != nil {
			return idempotent.NotExecuted(err) // want `notexecuted: `
		}
		if _, err := provider.Pay(ctx, orders[0]); err != nil {
			return err
		}
	}
}

func validate([]provider.Order) error { return nil }

func proven(ctx context.Context, o provider.Order, connected *atomic.Bool) error {
	_, err := provider.Pay(ctx, o)
	if err == errNotSent {
		return idempotent.NotExecuted(err)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotSent):
		return idempotent.NotExecuted(err)
	case !connected.Load():
		return idempotent.NotExecuted(err)
	}
	return err
}

func inClosure(ctx context.Context, o provider.Order) error {
	err := retry(func() error {
		_, err := provider.Pay(ctx, o)
		return err
	})
	if err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: `
	}
	return nil
}

func retry(f func() error) error {
	if err := f(); err != nil {
		return f()
	}
	return nil
}

func conditions(ctx context.Context, o provider.Order) (_ string, err error) {
	if o.ID == "" {
		defer func() { err = idempotent.NotExecuted(err) }() // not certain
	}
	resp, err := http.Post("https://bank.test", "", nil)
	if resp == nil {
		return "", idempotent.NotExecuted(err)
	}
	return "", err
}

func uncertain(o provider.Order) (err error) {
	if o.ID == "" {
		defer func() { err = idempotent.NotExecuted(err) }()
	}
	_, err = http.Post("https://bank.test", "", nil)
	return err
}

func inLiteral() error {
	err := retry(func() error {
		_, err := http.Post("https://bank.test", "", nil)
		return err
	})
	if err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Post`
	}
	return nil
}

// registered runs later.
func registered(http.ResponseWriter, *http.Request) { http.Post("https://bank.test", "", nil) }

func byName() error {
	http.HandleFunc("/charges", registered)
	return idempotent.NotExecuted(errNotSent)
}

type doer interface {
	Do(*http.Request) (*http.Response, error)
}

type queue interface {
	Do(string) error
	Add(*dynamodb.PutItemInput)
	Get(string) (*http.Response, error)
	Check(*http.Request) (bool, error)
}

func check(*http.Request) (*http.Response, error) { return nil, nil }

type repository struct{}

func (repository) Save(context.Context, *dynamodb.PutItemInput) error { return nil }

func clients(ctx context.Context, d doer, q queue, r repository) error {
	q.Add(&dynamodb.PutItemInput{})
	q.Get("x")
	if err := q.Do("x"); err != nil {
		return idempotent.NotExecuted(err)
	}
	if err := r.Save(ctx, &dynamodb.PutItemInput{}); err != nil {
		return idempotent.NotExecuted(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "https://bank.test", nil)
	if err != nil {
		return err
	}
	q.Check(req)
	if _, err := check(req); err != nil {
		return idempotent.NotExecuted(err)
	}
	if _, err := d.Do(req); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows doer.Do`
	}
	return nil
}

func byClient(c *http.Client) error {
	if _, err := c.Post("https://bank.test", "", nil); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Client.Post`
	}
	return nil
}

func byStatement(s *sql.Stmt) error {
	if _, err := s.Exec(1); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Stmt.Exec`
	}
	return nil
}

func compares(ctx context.Context, o, other provider.Order) error {
	_, err := provider.Pay(ctx, o)
	if o.ID == other.ID {
		return idempotent.NotExecuted(err)
	}
	if _, err := dynamostore.CommitStep(ctx, "paid", "done"); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows CommitStep`
	}
	return err
}

func commitStep(ctx context.Context) error {
	if _, err := dynamostore.CommitStep(ctx, "paid", "done"); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows CommitStep`
	}
	return nil
}

func ofSDK(ctx context.Context, c *dynamodb.Client) error {
	if _, err := c.PutItem(ctx, &dynamodb.PutItemInput{}); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Client.PutItem`
	}
	return nil
}

func findOrPay(ctx context.Context, o provider.Order) error {
	if err := provider.FindOrPay(ctx, o); err != nil {
		return idempotent.NotExecuted(err) // want `notexecuted: NotExecuted follows Client.Do`
	}
	return nil
}

func unnamed(d interface {
	Do(*http.Request) (*http.Response, error)
}, method string) error {
	send := func(string) error {
		req, err := http.NewRequest(method, "https://bank.test", nil)
		if err != nil {
			return err
		}
		if _, err = d.Do(req); err != nil {
			return err
		}
		do := d.Do
		_, err = do(req)
		return err
	}
	if err := send(http.MethodPost); err != nil { // the method is not known
		return idempotent.NotExecuted(err)
	}
	return nil
}
