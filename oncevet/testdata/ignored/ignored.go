// SPDX-License-Identifier: Apache-2.0

package ignored

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

func dropped(ctx context.Context, g *idempotent.Guard, id idempotent.RecordID) string {
	_ = g.Resolve(ctx, id, idempotent.Resolved("done")) // want `ignored: the error of Guard.Resolve is ignored`
	receipt, _ := idempotent.Step(ctx, "mail", mail)    // want `ignored: the error of Step is ignored`
	go idempotent.Step(ctx, "later", mail)              // want `ignored: the error of Step is ignored`
	defer dynamostore.CommitStep(ctx, "order", "done")  // want `ignored: the error of CommitStep is ignored`
	dynamostore.Commit(ctx, "done")                     // want `ignored: the error of Commit is ignored`
	return receipt
}

func overwritten(ctx context.Context) error {
	err := dynamostore.Commit(ctx, "done") // want `ignored: the error of Commit is ignored`
	_, err = mail(ctx)
	return err
}

func logged(ctx context.Context) (string, error) {
	if err := dynamostore.Commit(ctx, "done"); err != nil { // want `ignored: the error of Commit is only logged`
		log.Printf("commit: %v", err)
	}
	return "done", nil
}

var failures []error

func count(err error) { failures = append(failures, err) }

func printed(ctx context.Context) (string, error) {
	if err := dynamostore.Commit(ctx, "done"); err != nil { // want `ignored: the error of Commit is only logged`
		fmt.Println("commit", err)
	}
	if err := dynamostore.Commit(ctx, "done"); nil != err { // want `ignored: the error of Commit is only logged`
		fmt.Fprintln(os.Stderr, err)
	}
	committed := false
	if err := dynamostore.Commit(ctx, "done"); err == nil {
		committed = true
	}
	if !committed {
		return "", nil
	}
	err := dynamostore.Commit(ctx, "done") // want `ignored: the error of Commit is only logged`
	slog.Error("commit", "error", err)
	err = dynamostore.Commit(ctx, "done") // want `ignored: the error of Commit is only logged`
	slog.Error("commit", slog.Any("error", err))
	if err := dynamostore.Commit(ctx, "done"); errors.Is(err, idempotent.ErrNotApplied) { // want `ignored: the error of Commit is only logged`
		log.Print("not applied")
	}
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		log.Print(err)
		os.Exit(1)
	}
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		log.Fatal(err)
	}
	return "done", nil
}

func last(ctx context.Context) { log.Fatal(dynamostore.Commit(ctx, "done")) }

func mail(context.Context) (string, error) { return "m_1", nil }

func save(ctx context.Context) error {
	if _, err := dynamostore.CommitStep(ctx, "saved", "done"); err != nil {
		log.Printf("commit: %v", err)
		return errors.New("not stored")
	}
	return nil
}

func right(ctx context.Context) (string, error) {
	if err := save(ctx); err != nil {
		return "", err
	}
	if _, err := dynamostore.CommitStep(ctx, "order", "done"); err != nil {
		return "", err
	}
	if _, err := idempotent.Step(ctx, "mail", mail); nil == err {
		return "done", nil
	}
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		if err == idempotent.ErrNotApplied {
			log.Print("not applied")
		}
		return "", errors.New("not stored")
	}
	failures = []error{dynamostore.Commit(ctx, "done")}
	failed := dynamostore.Commit(ctx, "done") != nil
	if failed {
		return fmt.Sprint(failed), errors.New("not stored")
	}
	for {
		if err := dynamostore.Commit(ctx, "done"); err != nil {
			log.Print(err)
			continue
		}
		break
	}
	if err := dynamostore.Commit(ctx, "done"); err != nil {
		count(err)
	}
	var err error
	defer func() {
		if err != nil {
			log.Print(err)
		}
	}()
	err = dynamostore.Commit(ctx, "done")
	return "done", err
}
