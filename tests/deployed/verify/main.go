// SPDX-License-Identifier: Apache-2.0

// Command verify checks on AWS what everything else in this repository checks on
// DynamoDB Local and LocalStack: make verify-aws, docs/deploy.md. It deploys a stack,
// compares what AWS does with what the documentation claims, and destroys the stack.
//
//	verify run [--yes] [--max DOLLARS] [--region R] [--id ID] [--claims A,B] [--kms]
//	           [--json FILE] [--boundary ARN] [--role-prefix TEXT]
//	verify policy [--account A] [--region R] [--role-prefix TEXT] [--boundary ARN] [--kms]
//	              [--regions A,B,C]
//	verify destroy ID [--region R]
//	verify regions [--yes] [--max DOLLARS] [--id ID] --regions A,B,C [--json FILE]
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit/engine"
)

// claims are the claims of a run, in the order of the table.
var claims = []claim{permissions, units, refused, kills, crowd, metrics, alarms, batch, index, clocks, key}

const usage = "usage: make verify-aws ARGS='run | policy | destroy ID | regions', see docs/deploy.md"

// templateCommand is what this program runs itself with, to synthesise a stack.
const templateCommand = "template"

// bundles is a variable with a folder of built functions, for tests.
const bundles = "ONCE_VERIFY_BUNDLES"

func main() {
	if len(os.Args) > 1 && os.Args[1] == templateCommand {
		os.Exit(printTemplate())
	}
	// A second interrupt ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "verify-aws:", err)
		os.Exit(1)
	}
}

func printTemplate() int {
	var s shape
	err := json.NewDecoder(os.Stdin).Decode(&s)
	if err == nil {
		var text []byte
		if text, err = synthesise(s); err == nil {
			_, err = os.Stdout.Write(text)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// settings are the flags of all subcommands.
type settings struct {
	yes                               bool
	max                               float64
	region, id, claims, json, regions string
	account, boundary, rolePrefix     string
	kms                               bool
	wrong                             string
}

var validID = regexp.MustCompile(`^[a-z0-9]{1,12}$`)

func command(ctx context.Context, args []string, in io.Reader, out, log io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	switch args[0] {
	case "run":
		return run(ctx, s, in, out, log)
	case "policy":
		return printPolicy(out, s)
	case "destroy":
		return destroy(ctx, s, out, log)
	default:
		return runRegions(ctx, s, in, out, log)
	}
}

// parse returns the settings of a command line, which begins with a subcommand.
func parse(args []string) (settings, error) {
	s := settings{id: strings.ToLower(rand.Text()[:8])}
	if len(args) == 0 || !slices.Contains([]string{"run", "policy", "destroy", "regions"}, args[0]) {
		return s, fmt.Errorf("invalid subcommand %q: %s", args, usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error has the text
	flags.BoolVar(&s.yes, "yes", false, "do not ask")
	flags.Float64Var(&s.max, "max", 1, "refuse to start if the estimate is above these dollars")
	flags.StringVar(&s.region, "region", "", "the region; default: that of the SDK")
	flags.StringVar(&s.id, "id", s.id, "the end of all names; default: random")
	flags.StringVar(&s.claims, "claims", "", "only these claims, separated by commas")
	flags.StringVar(&s.json, "json", "", "the file of the report; default: .cache/verify/ID.json")
	flags.StringVar(&s.regions, "regions", "", "three regions, separated by commas, of subcommand regions")
	flags.StringVar(&s.account, "account", "*", "the account of the policy")
	flags.StringVar(&s.boundary, "boundary", "", "the ARN of a permissions boundary of all roles")
	flags.StringVar(&s.rolePrefix, "role-prefix", "", "the beginning of the names of roles")
	flags.BoolVar(&s.kms, "kms", false, "encrypt the table with a key of the stack")
	flags.StringVar(&s.wrong, "wrong", "", "for tests: make the stack wrong")
	rest := args[1:]
	if args[0] == "destroy" {
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
			return s, errors.New("destroy: the id of a run is missing: " + usage)
		}
		s.id, rest = rest[0], rest[1:]
	}
	if err := flags.Parse(rest); err != nil {
		return s, fmt.Errorf("%w: %s", err, usage)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: %s", flags.Arg(0), usage)
	}
	if !validID.MatchString(s.id) {
		return s, fmt.Errorf("invalid id %q: want 1 to 12 lower-case letters and digits", s.id)
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
	w, err := newWorld(ctx, s.id, s.region, log)
	if err != nil {
		return err
	}
	w.Boundary, w.RolePrefix, w.KMS = s.boundary, s.rolePrefix, s.kms
	if s.wrong != "" {
		w.Wrong = strings.Split(s.wrong, ",")
	}
	if w.Local {
		w.Arch = runtime.GOARCH
	}
	if err := w.mustBeNew(ctx); err != nil {
		return err
	}
	if err := consent(ctx, w, s, estimate(s.kms), in, out); err != nil {
		return err
	}
	w.note("id %s: if this run is killed, remove what it leaves with: make verify-aws ARGS='destroy %s --region %s'", w.ID, w.ID, w.Region)
	stack, err := template(ctx, w.shape)
	if err != nil {
		return err
	}
	function, extension, err := build(ctx, w.Arch, os.Getenv(bundles))
	if err != nil {
		return err
	}
	w.note("functions built")
	defer func() { err = errors.Join(err, w.end(ctx, out)) }()
	if err := w.deploy(ctx, function, extension, stack); err != nil {
		return err
	}
	if w.store, err = dynamostore.New(dynamostore.NewClient(w.cfg), w.outputs["Records"]); err != nil {
		return err
	}
	r := w.report(ctx, judgeAll(ctx, w, chosen))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.print(out); err != nil {
		return err
	}
	return errors.Join(r.write(s.json, out), r.err())
}

// choose returns the claims of the flags.
func choose(s settings) ([]claim, error) {
	names := strings.Split(s.claims, ",")
	var chosen []claim
	for _, c := range claims {
		if (s.claims == "" || slices.Contains(names, c.name)) && (!c.kms || s.kms) {
			chosen = append(chosen, c)
		}
	}
	if s.claims != "" && len(chosen) != len(names) {
		return nil, fmt.Errorf("invalid claims %q: want names of docs/reports/aws.md, and --kms for kms", s.claims)
	}
	return chosen, nil
}

// consent prints where the run is and what it costs, and waits for the end of the
// account's number.
func consent(ctx context.Context, w *world, s settings, parts []cost, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "account %s (%s), region %s\n", w.Account, w.alias(ctx), w.Region)
	if err := printCosts(out, parts); err != nil {
		return err
	}
	if dollars := sum(parts); dollars > s.max {
		return fmt.Errorf("the estimate of $%.2f is above --max %g", dollars, s.max)
	}
	if s.yes {
		return nil
	}
	digits := w.Account[len(w.Account)-4:]
	fmt.Fprint(out, "To start, type the last four digits of the account: ")
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // at the end of the input it is not the digits
		typed <- strings.TrimSpace(line)
	}()
	select {
	case line := <-typed:
		if line != digits {
			return errors.New("not confirmed: nothing was created")
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// mustBeNew refuses an id that something has already.
func (w *world) mustBeNew(ctx context.Context) error {
	stack, err := w.stack(ctx)
	if err != nil {
		return err
	}
	if stack != nil {
		return fmt.Errorf("a stack %s exists: choose another --id, or remove it with: make verify-aws ARGS='destroy %s'", nameOf(w.ID), w.ID)
	}
	_, err = w.s3.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(nameOf(w.ID))})
	if errors.As(err, new(*s3types.NotFound)) {
		return nil
	}
	return fmt.Errorf("a bucket %s may exist: choose another --id, or remove it with: make verify-aws ARGS='destroy %s' (%w)", nameOf(w.ID), w.ID, err)
}

// cleanUp is how long the removal may take, also after an interrupt.
const cleanUp = 20 * time.Minute

// end removes everything, whatever has become of the context.
func (w *world) end(ctx context.Context, out io.Writer) error {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if interrupted {
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		w.note("interrupted: removing everything; a second interrupt ends this at once")
	} else {
		w.note("removing everything")
	}
	if err := w.destroy(ctx); err != nil {
		return fmt.Errorf("%w\nremove the rest with: make verify-aws ARGS='destroy %s --region %s'", err, w.ID, w.Region)
	}
	fmt.Fprintf(out, kept, nameOf(w.ID))
	return nil
}

// destroy removes what an earlier run left.
func destroy(ctx context.Context, s settings, out, log io.Writer) error {
	w, err := newWorld(ctx, s.id, s.region, log)
	if err != nil {
		return err
	}
	return w.end(ctx, out)
}

// report describes a run.
func (w *world) report(ctx context.Context, rows []row) report {
	commit, err := output(ctx, nil, engine.Root(), "git", "describe", "--always", "--dirty", "--abbrev=40")
	if err != nil {
		commit = []byte("unknown")
	}
	return report{
		ID: w.ID, Region: w.Region, Date: time.Now().UTC().Format(time.RFC3339), Commit: strings.TrimSpace(string(commit)),
		SDK: "aws-sdk-go-v2 " + aws.SDKVersion, LocalStack: w.Local, Rows: rows, account: w.Account,
	}
}

// write writes the report to a file, and prints its name.
func (r report) write(file string, out io.Writer) error {
	if file == "" {
		file = filepath.Join(engine.Root(), ".cache", "verify", r.ID+".json")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "report:", file)
	return os.WriteFile(file, append(r.masked(text), '\n'), 0o644)
}
