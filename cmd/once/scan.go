// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
)

// scanCommand returns the command once scan.
func scanCommand(e *operate.Env) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "scan",
		Short: "Let the reconciler look for abandoned runs now",
		Long: `The next run of the reconciler begins a scan of the table, without waiting for
the time of the next one. The scan finds runs whose process ended without a
warning, and reads the whole table. A run that was killed at its deadline is
found without a scan. Use it after processes ended without a warning, for
example for lack of memory. It needs a reconciler whose scans are not off.`,
		Example: `  once scan`,
		RunE: onStore(e, func(ctx context.Context, o operate.Store) error {
			if o.Scheduled() == nil {
				return operate.Usage("%s needs no scans: its list of due records shows abandoned runs", o.Name())
			}
			if err := o.Alien(ctx); err != nil {
				return err
			}
			begins, err := o.Scheduled().BeginScan(ctx, e.Now())
			if err != nil {
				return err
			}
			if e.JSON {
				return e.Document(map[string]bool{"begins": begins})
			}
			text := "The next run of the reconciler begins a scan."
			if !begins {
				text = "A scan is under way already: once stats shows when it began."
			}
			_, err = fmt.Fprintln(e.Stdout, text)
			return err
		}),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}
