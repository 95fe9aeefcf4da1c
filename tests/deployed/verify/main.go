// SPDX-License-Identifier: Apache-2.0

// Command verify checks on AWS what only AWS can show: make verify-aws, docs/deploy.md.
// It deploys a stack, compares what AWS does with what the documentation claims, and
// destroys the stack. On LocalStack it rehearses that.
//
//	verify run [--yes] [--max DOLLARS] [--region R] [--id ID] [--claims A,B] [--replicas A,B]
//	           [--json FILE] [--boundary ARN] [--role-prefix TEXT]
//	verify policy [--account A] [--region R] [--replicas A,B] [--boundary ARN] [--role-prefix TEXT]
//	verify destroy ID [--region R]
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// claims are the claims of a run, in the order of the table.
var claims = []claim{permissions, refused, kills, metrics, alarms, clocks, regions}

const usage = "usage: make verify-aws ARGS='run | policy | destroy ID', see docs/deploy.md"

// templateCommand is what this program runs itself with, to synthesise a stack.
const templateCommand = "template"

// archive is a variable with the archive of the function, for tests.
const archive = "ONCE_VERIFY_ARCHIVE"

func main() {
	err := error(nil)
	if len(os.Args) > 1 && os.Args[1] == templateCommand {
		err = synthesise(os.Stdin, os.Stdout)
	} else {
		err = command(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-aws:", err)
		os.Exit(1)
	}
}

// settings are the flags of all subcommands.
type settings struct {
	shape
	yes    bool
	max    float64
	claims []string
	json   string
}

func command(ctx context.Context, args []string, in io.Reader, out, log io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if args[0] == "policy" {
		return printPolicy(out, s.shape)
	}
	if args[0] == "run" {
		return run(ctx, s, in, out, log)
	}
	w, err := newWorld(ctx, s.shape, log)
	if err != nil {
		return err
	}
	return w.end(ctx, out)
}

var validID = regexp.MustCompile(`^[a-z0-9]{1,12}$`)

// parse returns the settings of a command line, which begins with a subcommand.
func parse(args []string) (settings, error) {
	s := settings{shape: shape{ID: strings.ToLower(rand.Text()[:8])}}
	if len(args) == 0 || !slices.Contains([]string{"run", "policy", "destroy"}, args[0]) {
		return s, fmt.Errorf("invalid subcommand %q: %s", args, usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error has the text
	list := func(into *[]string) func(string) error {
		return func(text string) error { *into = strings.Split(text, ","); return nil }
	}
	flags.BoolVar(&s.yes, "yes", false, "do not ask")
	flags.Float64Var(&s.max, "max", 1, "refuse to start if the estimate is above these dollars")
	flags.StringVar(&s.Region, "region", "", "the region; default: that of the SDK")
	flags.StringVar(&s.ID, "id", s.ID, "the end of all names; default: random")
	flags.Func("claims", "only these claims, separated by commas", list(&s.claims))
	flags.Func("replicas", "two other regions, separated by commas: add a table in three regions", list(&s.Replicas))
	flags.StringVar(&s.json, "json", "", "the file of the report; default: .cache/verify/ID.json")
	flags.StringVar(&s.Account, "account", "", "the account of the policy; default: any")
	flags.StringVar(&s.Boundary, "boundary", "", "the ARN of a permissions boundary of all roles")
	flags.StringVar(&s.RolePrefix, "role-prefix", "", "the beginning of the names of roles")
	flags.Func("wrong", "for tests: make the stack wrong", list(&s.Wrong))
	rest := args[1:]
	if args[0] == "destroy" {
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
			return s, errors.New("destroy: the id of a run is missing: " + usage)
		}
		s.ID, rest = rest[0], rest[1:]
	}
	if err := flags.Parse(rest); err != nil {
		return s, fmt.Errorf("%w: %s", err, usage)
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q: %s", flags.Arg(0), usage)
	case !validID.MatchString(s.ID):
		return s, fmt.Errorf("invalid id %q: want 1 to 12 lower-case letters and digits", s.ID)
	case s.Replicas != nil && len(s.Replicas) != 2:
		return s, fmt.Errorf("invalid replicas %q: want two regions besides that of the run", s.Replicas)
	}
	return s, nil
}

func nameOf(id string) string { return "once-verify-" + id }

// run deploys, judges and destroys.
func run(ctx context.Context, s settings, in io.Reader, out, log io.Writer) (err error) {
	chosen, err := choose(s)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, s.shape, log)
	if err != nil {
		return err
	}
	if w.Local && s.Replicas != nil {
		return errors.New("--replicas is only on AWS: LocalStack cannot create such a table")
	}
	if err := w.mustBeNew(ctx); err != nil {
		return err
	}
	if err := consent(w, s, estimate(chosen), in, out); err != nil {
		return err
	}
	w.note("id %s: if this run is killed, remove what it leaves with: %s", w.ID, w.removal())
	stack, err := templateOf(w.shape)
	if err != nil {
		return err
	}
	function, err := build(w.Arch, os.Getenv(archive))
	if err != nil {
		return err
	}
	w.note("function built")
	// From now on the first interrupt ends the run, and a second one the program.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer func() { err = errors.Join(err, w.end(ctx, out)) }()
	if err := w.deploy(ctx, function, stack); err != nil {
		return err
	}
	r := w.report(judgeAll(ctx, w, chosen))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(r.publish(out, s.json), r.err())
}

// choose returns the claims of the flags.
func choose(s settings) ([]claim, error) {
	var chosen []claim
	for _, c := range claims {
		if (s.claims == nil || slices.Contains(s.claims, c.name)) && (!c.replicas || s.Replicas != nil) {
			chosen = append(chosen, c)
		}
	}
	if s.claims != nil && len(chosen) != len(s.claims) {
		return nil, fmt.Errorf("invalid claims %q: want names of docs/reports/aws.md, and --replicas for regions", s.claims)
	}
	return chosen, nil
}

// consent prints where the run is and what it costs, and waits for the end of the
// account's number.
func consent(w *world, s settings, parts []cost, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "account %s, region %s\n", w.Account, w.Region)
	if dollars := printCosts(out, parts); dollars > s.max {
		return fmt.Errorf("the estimate of $%.2f is above --max %g", dollars, s.max)
	}
	if s.yes {
		return nil
	}
	fmt.Fprint(out, "To start, type the last four digits of the account: ")
	line, _ := bufio.NewReader(in).ReadString('\n') // at the end of the input it is not the digits
	if strings.TrimSpace(line) != w.Account[len(w.Account)-4:] {
		return errors.New("not confirmed: nothing was created")
	}
	return nil
}

// mustBeNew refuses an id that something has already.
func (w *world) mustBeNew(ctx context.Context) error {
	stack, err := w.stack(ctx)
	if err != nil {
		return err
	}
	if stack != nil {
		return fmt.Errorf("a stack %s exists: choose another --id, or remove it with: %s", nameOf(w.ID), w.removal())
	}
	_, err = w.s3.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(nameOf(w.ID))})
	if errors.As(err, new(*s3types.NotFound)) {
		return nil
	}
	return fmt.Errorf("a bucket %s may exist: choose another --id, or remove it with: %s (%w)", nameOf(w.ID), w.removal(), err)
}

// removal returns the command that removes what a run left.
func (w *world) removal() string {
	return fmt.Sprintf("make verify-aws ARGS='destroy %s --region %s'", w.ID, w.Region)
}

// cleanUp is how long the removal may take, also after an interrupt. Tables with
// replicas take longest.
const cleanUp = 40 * time.Minute

// end removes everything, whatever has become of the context.
func (w *world) end(ctx context.Context, out io.Writer) error {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if interrupted {
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		w.note("interrupted: a second interrupt ends this at once")
	}
	w.note("removing everything")
	if err := w.destroy(ctx); err != nil {
		return fmt.Errorf("%w\nremove the rest with: %s", err, w.removal())
	}
	fmt.Fprintf(out, kept, nameOf(w.ID))
	return nil
}

// cost is a part of the price, at the list prices of us-east-1 of 2026-11-21.
type cost struct {
	what   string
	amount float64
	price  float64 // of one, in dollars
}

// estimate returns the parts of the price of a run that checks these claims, each at
// most.
func estimate(claims []claim) []cost {
	const month = 730 // hours
	units := 0
	for _, c := range claims {
		units += c.units
	}
	return []cost{
		{"write units", float64(units), 0.625e-6},
		{"read units", 2_000, 0.125e-6},
		{"GB-seconds of Lambda", 200 * 5 * 0.128, 16.6667e-6},
		{"requests to Lambda, SQS, SNS, S3 and CloudWatch", 2_000, 5e-6},
		{"hours of a custom metric", 100 * 2, 0.30 / month},
		{"hours of a metric of an alarm", 60 * 2, 0.10 / month},
		{"GB of logs", 0.02, 0.50},
		{"hours of a key", 2, 1.0 / month},
		{"requests to KMS", 1_000, 3e-6},
		{"GB between regions", 0.001, 0.02},
	}
}

// printCosts prints the parts, and returns their sum.
func printCosts(out io.Writer, all []cost) (dollars float64) {
	fmt.Fprintf(out, "%-50s %8s %8s\n", "AT MOST", "AMOUNT", "DOLLARS")
	for _, c := range all {
		fmt.Fprintf(out, "%-50s %8g %8.4f\n", c.what, c.amount, c.amount*c.price)
		dollars += c.amount * c.price
	}
	fmt.Fprintf(out, "%-50s %17.4f\n", "total", dollars)
	return dollars
}
