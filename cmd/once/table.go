package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/once-lambda/once/dynamostore"
)

type tableCmd struct {
	Create createCmd `cmd:"" help:"Create the table with its index and time to live, or create the file. An existing one is checked and not changed."`
	Check  checkCmd  `cmd:"" help:"Check whether the table, or the file, can be used as a store."`
}

type (
	createCmd struct{}
	checkCmd  struct{}
)

// Help returns the additional text of once table create --help.
func (*createCmd) Help() string {
	return `It is for tests and local use. In production create the table with infrastructure code, where backups, deletion protection and encryption are decided.`
}

// tableCreator is a store that can create its table.
type tableCreator interface {
	CreateTable(ctx context.Context) error
}

// Run creates the store.
func (*createCmd) Run(ctx context.Context, e *env) error {
	o, err := e.openStore(ctx, mayCreate)
	if err != nil {
		return err
	}
	defer o.close()
	if s, ok := o.records.(tableCreator); ok {
		err = s.CreateTable(ctx) // also checks the table
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

// verdict prints whether the store can be used, and otherwise its problems, one
// per line.
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
		return fmt.Errorf("%s cannot be used as a store", o.name)
	case wrong:
		return err
	case e.json:
		return nil
	}
	_, err = fmt.Fprintf(e.stdout, "%s can be used as a store\n", oneLine(o.name))
	return err
}
