// SPDX-License-Identifier: Apache-2.0

// Command playground serves the charge example on 127.0.0.1, with and without once,
// together with simulated payment providers and a page that shows what happens. See
// its README for what to try.
//
//	playground                 serves
//	playground policy          prints what clients have to know about keys, in Markdown
//	playground policy openapi  the same as an OpenAPI 3.1 document
//
// It starts itself again as its workers, with the argument "worker", and as those of
// the half without once, with the arguments "worker without-once".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// command runs the command that the arguments name.
func command(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0:
		return run(ctx, getenv, stdout, stderr)
	case slices.Equal(args, []string{"worker"}):
		return work(getenv, newLogger(stderr), true)
	case slices.Equal(args, []string{"worker", withoutOnce}):
		return work(getenv, newLogger(stderr).With("half", withoutOnce), false)
	case slices.Equal(args, []string{"policy"}):
		return printPolicy(getenv, stdout, false)
	case slices.Equal(args, []string{"policy", "openapi"}):
		return printPolicy(getenv, stdout, true)
	}
	return errors.New("invalid arguments: want none to serve, \"policy\" or \"policy openapi\"")
}

// config is the configuration from the environment.
type config struct {
	port        int                       // PORT; 0: any free one
	data        string                    // DATA: directory of the store's file and the ledger
	timeout     time.Duration             // TIMEOUT of the function
	slow        time.Duration             // SLOW: how long the built-in provider takes for cus_slow
	profile     string                    // PROFILE: the profile of the Idempotency-Key header
	keys        func(*lambdahttp.Options) // sets the profile
	table       string                    // ONCE_TABLE: DynamoDB instead of the file
	createTable bool                      // ONCE_CREATE_TABLE
	providerURL string                    // PROVIDER_URL: another provider instead of the built-in one
}

func (c *config) storePath() string  { return filepath.Join(c.data, "once.db") }
func (c *config) ledgerPath() string { return filepath.Join(c.data, "ledger.jsonl") }
func (c *config) unguardedLedgerPath() string {
	return filepath.Join(c.data, "ledger-without-once.jsonl")
}

// readConfig reads the environment. An error names the variable and the valid
// values.
func readConfig(getenv func(string) string) (c config, err error) {
	or := func(name, otherwise string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	c.data, c.table, c.providerURL = or("DATA", "./.data"), getenv("ONCE_TABLE"), getenv("PROVIDER_URL")
	c.profile = or("PROFILE", "ietf")
	if c.keys, err = profileKeys(c.profile); err != nil {
		return c, err
	}
	if c.port, err = strconv.Atoi(or("PORT", "8080")); err != nil || c.port < 0 || c.port > 65535 {
		return c, fmt.Errorf("invalid PORT %q: must be a number from 1 to 65535, or 0 for any free port", getenv("PORT"))
	}
	if c.timeout, err = time.ParseDuration(or("TIMEOUT", "10s")); err != nil || c.timeout <= 0 {
		return c, fmt.Errorf("invalid TIMEOUT %q: must be a duration like 10s or 500ms", getenv("TIMEOUT"))
	}
	if c.slow, err = time.ParseDuration(or("SLOW", "2s")); err != nil || c.slow <= 0 {
		return c, fmt.Errorf("invalid SLOW %q: must be a duration like 2s or 500ms", getenv("SLOW"))
	}
	switch v := getenv("ONCE_CREATE_TABLE"); v {
	case "", "0":
	case "1":
		c.createTable = true
	default:
		return c, fmt.Errorf("invalid ONCE_CREATE_TABLE %q: must be 1 or 0", v)
	}
	if c.createTable && c.table == "" {
		return c, fmt.Errorf("ONCE_CREATE_TABLE is set but ONCE_TABLE is not; set ONCE_TABLE to the table's name")
	}
	return c, nil
}

// profileKeys returns the option for the profile with the given name. Problems link
// to the page of its rules.
func profileKeys(name string) (func(*lambdahttp.Options), error) {
	p, known := map[string]lambdahttp.Profile{"ietf": lambdahttp.IETF, "stripe": lambdahttp.Stripe, "uuid": lambdahttp.UUID}[name]
	if !known {
		return nil, fmt.Errorf("invalid PROFILE %q: want ietf, stripe or uuid", name)
	}
	p.PerResource = false // all charges are created at one path, so charge.RecordIDOf needs only the key
	return func(o *lambdahttp.Options) { o.Profile, o.DocsURL = p, policyPath }, nil
}
