// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
)

// versionCommand returns the command once version, for scripts and error reports.
func versionCommand(e *operate.Env) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  once version\n  once version --json",
		RunE: command(e, func(context.Context, []string) error {
			if e.JSON {
				return e.Document(map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(e.Stdout, "once version %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

// version returns the version of the module that the binary was built from.
func version() string {
	info, _ := debug.ReadBuildInfo() // nil if the binary was built without modules
	return cmp.Or(cmp.Or(info, &debug.BuildInfo{}).Main.Version, "(unknown)")
}
