package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/once-lambda/once/dynamostore"
)

type tableCmd struct {
	Create createCmd `cmd:"" help:"Create the table with its index and time to live, or make the file. What exists is checked and not changed."`
	Check  checkCmd  `cmd:"" help:"Say whether the table, or the file, can serve as a store."`
}

type (
	createCmd struct{}
	checkCmd  struct{}
)

// Help is what once table create --help says besides the flags.
func (*createCmd) Help() string {
	return `It is for tests and local use. Elsewhere the table belongs into infrastructure code, where backups, deletion protection and encryption are decided.`
}

// tableCreator is a store that can make its table.
type tableCreator interface {
	CreateTable(ctx context.Context) error
}

// Run makes the store.
func (*createCmd) Run(ctx context.Context, e *env) error {
	o, err := e.openStore(ctx, mayCreate)
	if err != nil {
		return err
	}
	defer o.close()
	if s, ok := o.records.(tableCreator); ok {
		err = s.CreateTable(ctx) // which checks it, too
	}
	return e.verdict(o, err)
}

// Run checks the store.
func (*checkCmd) Run(ctx context.Context, e *env) error {
	o, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	return e.verdict(o, o.check(ctx))
}

// verdict says whether the store can be used, and otherwise what is wrong with
// it: each problem on a line of its own.
func (e *env) verdict(o *opened, err error) error {
	schema, wrong := errors.AsType[*dynamostore.SchemaError](err)
	if err != nil && !wrong {
		return err
	}
	if e.json {
		problems := []string{}
		if wrong {
			for _, p := range schema.Problems {
				problems = append(problems, p.Error())
			}
		}
		if err := e.document(map[string]any{"store": o.name, "ok": !wrong, "problems": problems}); err != nil {
			return err
		}
	}
	switch {
	case wrong && e.json:
		return fmt.Errorf("%s cannot serve as a store", o.name)
	case wrong:
		return err
	case e.json:
		return nil
	}
	_, err = fmt.Fprintf(e.stdout, "%s can serve as a store\n", oneLine(o.name))
	return err
}
