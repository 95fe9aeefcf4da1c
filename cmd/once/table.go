package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/dynamostore"
)

// tableCmd is the commands once table create and once table check.
type tableCmd struct{ *env }

func tableCommand(e *env) *cobra.Command {
	c := &tableCmd{e}
	cmd := &cobra.Command{
		Use:     "table",
		Short:   "Create or check the table, or the file",
		Example: "  once table check",
		Args:    cobra.NoArgs,
		RunE: e.command(func(context.Context, []string) error {
			return usage("missing command: want once table create or once table check")
		}),
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "create",
		Short: "Create the table, or the file",
		Long: `Create the table, or the file.

A table gets its index and its time to live. An existing table or file is
checked and not changed.

The command is for tests and local use. In production create the table with
infrastructure code, where backups, deletion protection and encryption are
decided.`,
		Example: "  once table create --table once-records --endpoint http://127.0.0.1:4566",
		Args:    cobra.NoArgs,
		RunE:    e.command(c.create),
	}, &cobra.Command{
		Use:     "check",
		Short:   "Check whether the table, or the file, can be used as a store",
		Example: "  once table check --table once-records",
		Args:    cobra.NoArgs,
		RunE:    e.command(c.check),
	})
	return cmd
}

// tableCreator is a store that can create its table.
type tableCreator interface {
	CreateTable(ctx context.Context) error
}

func (c *tableCmd) create(ctx context.Context, _ []string) error {
	o, err := c.openStore(ctx, mayCreate)
	if err != nil {
		return err
	}
	defer o.close()
	if s, ok := o.records.(tableCreator); ok {
		err = s.CreateTable(ctx) // also checks the table
	}
	return c.verdict(o, err)
}

func (c *tableCmd) check(ctx context.Context, _ []string) error {
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	return c.verdict(o, o.check(ctx))
}

// verdict prints whether the store can be used, and otherwise its problems, one
// per line.
func (c *tableCmd) verdict(o *opened, err error) error {
	schema, wrong := errors.AsType[*dynamostore.SchemaError](err)
	if err != nil && !wrong {
		return err
	}
	if c.json {
		problems := []string{}
		if wrong {
			for _, p := range schema.Problems {
				problems = append(problems, p.Error())
			}
		}
		if err := c.document(map[string]any{"store": o.name, "ok": !wrong, "problems": problems}); err != nil {
			return err
		}
	}
	switch {
	case wrong && c.json:
		return fmt.Errorf("%s cannot be used as a store", o.name)
	case wrong:
		return err
	case c.json:
		return nil
	}
	_, err = fmt.Fprintf(c.stdout, "%s can be used as a store\n", oneLine(o.name))
	return err
}
