// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
)

// tableCmd is the commands once table create and once table check.
type tableCmd struct {
	*operate.Env
	replicas []string
	witness  string
}

func tableCommand(e *operate.Env) *cobra.Command {
	c := &tableCmd{Env: e}
	cmd := &cobra.Command{
		Use:     "table",
		Short:   "Create or check the table, or the file",
		Example: "  once table check",
		Args:    cobra.ArbitraryArgs, // cobra prints the help for a mistyped one, and succeeds
		RunE: command(e, func(context.Context, []string) error {
			return operate.Usage("missing or unknown command: want once table create or once table check")
		}),
	}
	create := exits(&cobra.Command{
		Use:   "create",
		Short: "Create the table, or the file",
		Long: `A table gets its index and its time to live. An existing table or file is
checked and not changed.

With --consistency strong the table is in three regions: the one of --region and
those of two --replica, or of one --replica and a --witness. It has no time to
live; the scans of a reconciler delete expired records. Creating it takes
minutes.

The command is for tests and local use. In production create the table with
infrastructure code, where backups, deletion protection and encryption are
decided.`,
		Example: `  once table create --table once-records --endpoint http://127.0.0.1:4566
  once table create --table once-records --region eu-central-1 \
    --consistency strong --replica eu-west-1 --replica eu-west-3`,
		RunE: command(e, c.create),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
	create.Flags().StringArrayVar(&c.replicas, "replica", nil, "another `REGION` of a table with --consistency strong\n(repeatable)")
	create.Flags().StringVar(&c.witness, "witness", "", "`REGION` of its witness, in place of a replica")
	cmd.AddCommand(create, exits(&cobra.Command{
		Use:   "check",
		Short: "Check whether the table, or the file, can be used as a store",
		Long: `It reads how the table is described, and then does what functions do: it claims
a record, on a condition that is false, so that nothing is written, and queries
the index. Set the variables of your functions (ONCE_TABLE and the others), so
that it uses their table. Without permission to write, the claim is denied, and
the rest is checked.`,
		Example: "  once table check --table once-records",
		RunE:    onStore(e, c.check),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage))
	return cmd
}

func (c *tableCmd) create(ctx context.Context, _ []string) error {
	_, file, _ := c.Flags.Choose(c.Getenv) // openStore returns its error
	info, err := os.Stat(file)
	existed := err == nil && info.Size() > 0
	o, err := c.OpenStore(ctx, true)
	if err != nil {
		return err
	}
	defer o.Close()
	t := o.Scheduled()
	if err := c.checkRegions(t != nil); err != nil {
		return err
	}
	if t != nil {
		existed = t.Check(ctx) == nil
		err = t.CreateTable(ctx, func(opts *dynamostore.CreateOptions) { opts.Replicas, opts.Witness = c.replicas, c.witness }) // also checks the table
	}
	text := "was created and can be used as a store"
	if existed {
		text = "exists and can be used as a store; nothing was changed"
	}
	return c.verdict(o, err, text)
}

// checkRegions returns an error if the regions do not fit the consistency.
func (c *tableCmd) checkRegions(isTable bool) error {
	others := len(c.replicas)
	if c.witness != "" {
		others++
	}
	switch strong := isTable && c.Setting(c.Flags.Variable("ONCE_CONSISTENCY")) == string(dynamostore.Strong); {
	case !strong && others > 0:
		return operate.Usage("--replica and --witness are for a table with --consistency strong")
	case strong && others != 2:
		return operate.Usage("a table with strong consistency is in three regions: besides --region, name two with --replica, or one with --replica and one with --witness")
	}
	return nil
}

func (c *tableCmd) check(ctx context.Context, o operate.Store) error {
	var err error
	if t := o.Scheduled(); t != nil { // opening a file has checked everything
		err = t.Check(ctx)
	}
	return c.verdict(o, err, "can be used as a store")
}

// verdict prints the text if the store can be used, and otherwise its problems, one
// per line. A denied claim alone is not a problem of the table.
func (c *tableCmd) verdict(o operate.Store, err error, text string) error {
	schema, wrong := errors.AsType[*dynamostore.SchemaError](err)
	if err != nil && !wrong {
		return err
	}
	problems := []string{}
	if wrong {
		for _, p := range schema.Problems {
			problems = append(problems, p.Error())
		}
		op, _ := errors.AsType[*smithy.OperationError](schema.Problems[0])
		api, _ := errors.AsType[smithy.APIError](schema.Problems[0])
		wrong = len(problems) > 1 || op == nil || op.OperationName != "PutItem" || api == nil || api.ErrorCode() != "AccessDeniedException"
	}
	if c.JSON {
		if err := c.Document(map[string]any{"store": o.Name(), "ok": !wrong, "problems": problems}); err != nil {
			return err
		}
	}
	switch {
	case wrong && c.JSON:
		return fmt.Errorf("%s cannot be used as a store", o.Name())
	case wrong:
		return fmt.Errorf("%s: %w", o.Name(), err)
	case c.JSON:
		return nil
	case len(problems) > 0:
		_, err = fmt.Fprintf(c.Stdout, "%s has what a store needs; %s\n", output.OneLine(o.Name()), output.OneLine(problems[0]))
		return err
	}
	_, err = fmt.Fprintf(c.Stdout, "%s %s\n", output.OneLine(o.Name()), text)
	return err
}
