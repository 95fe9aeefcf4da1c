// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/middleware"

	"github.com/once-lambda/once/internal/kit/engine"
)

// asProgram makes this test the program, for tests that kill it, and for the program
// when it synthesises the stack.
const asProgram = "ONCE_VERIFY_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(test(m))
}

func test(m *testing.M) int {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			os.Unsetenv(name) // no real account's settings
		}
	}
	os.Setenv(asProgram, "yes")
	os.Setenv("AWS_CONFIG_FILE", os.DevNull)
	os.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	os.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	os.Setenv("AWS_REGION", "us-east-1")
	os.Setenv("NO_PROXY", "127.0.0.1,localhost")
	os.Setenv("no_proxy", "127.0.0.1,localhost")
	endpoint, stop, err := engine.LocalStack()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	os.Setenv("AWS_ENDPOINT_URL", endpoint)
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	if _, err := build(runtime.GOARCH, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv(archive, filepath.Join(engine.Root(), reports, "function-"+runtime.GOARCH+".zip"))
	configure = func(cfg *aws.Config) { cfg.APIOptions = append(cfg.APIOptions, record) }
	flag.Parse()
	flag.Set("test.parallel", "8") // these tests mostly wait
	return m.Run()
}

// called are the calls that the program has made in this process.
var called sync.Map

// record adds each call to called.
func record(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("called", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		called.Store(awsmiddleware.GetServiceID(ctx)+":"+awsmiddleware.GetOperationName(ctx), true)
		return next.HandleInitialize(ctx, in)
	}), middleware.After)
}

// program is a running verify.
type program struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner // of its progress
	seen  strings.Builder
	out   bytes.Buffer
}

func start(t *testing.T, env []string, stdin string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: exec.Command(self, args...)}
	p.cmd.Env, p.cmd.Stdin, p.cmd.Stdout = append(os.Environ(), env...), strings.NewReader(stdin), &p.out
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stderr)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// await reads the progress until it has the text, which must come.
func (p *program) await(t *testing.T, text string) {
	t.Helper()
	for p.lines.Scan() {
		fmt.Fprintln(&p.seen, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("%q did not come:\n%s%s", text, &p.seen, &p.out)
}

// end waits for the end, and returns everything that the program printed.
func (p *program) end() (printed string, err error) {
	for p.lines.Scan() {
		fmt.Fprintln(&p.seen, p.lines.Text())
	}
	err = p.cmd.Wait()
	return p.seen.String() + p.out.String(), err
}

// left returns what LocalStack has of a run.
func left(t *testing.T, id string) (names []string) {
	t.Helper()
	ctx, cfg, name := context.WithoutCancel(t.Context()), engine.Config(os.Getenv("AWS_ENDPOINT_URL")), nameOf(id)
	add := func(kind string, all ...string) {
		for _, n := range all {
			if strings.Contains(n, name) {
				names = append(names, kind+" "+n)
			}
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	stacks, err := cloudformation.NewFromConfig(cfg).ListStacks(ctx, nil)
	must(err)
	for _, s := range stacks.StackSummaries {
		if s.StackStatus != "DELETE_COMPLETE" {
			add("stack", *s.StackName)
		}
	}
	buckets, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).ListBuckets(ctx, nil)
	must(err)
	for _, b := range buckets.Buckets {
		add("bucket", *b.Name)
	}
	for _, prefix := range []string{"", "/aws/lambda/"} {
		groups, err := cloudwatchlogs.NewFromConfig(cfg).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String(prefix + name)})
		must(err)
		for _, g := range groups.LogGroups {
			add("log group", *g.LogGroupName)
		}
	}
	tables, err := dynamodb.NewFromConfig(cfg).ListTables(ctx, nil)
	must(err)
	add("table", tables.TableNames...)
	functions, err := lambda.NewFromConfig(cfg).ListFunctions(ctx, nil)
	must(err)
	for _, f := range functions.Functions {
		add("function", *f.FunctionName)
	}
	layers, err := lambda.NewFromConfig(cfg).ListLayerVersions(ctx, &lambda.ListLayerVersionsInput{LayerName: aws.String(name + "-Extension")})
	must(err)
	for _, l := range layers.LayerVersions {
		add("layer", *l.LayerVersionArn)
	}
	queues, err := sqs.NewFromConfig(cfg).ListQueues(ctx, nil)
	must(err)
	add("queue", queues.QueueUrls...)
	roles, err := iam.NewFromConfig(cfg).ListRoles(ctx, nil)
	must(err)
	for _, r := range roles.Roles {
		add("role", *r.RoleName)
	}
	return names
}

func wantNothingLeft(t *testing.T, id string) {
	t.Helper()
	if names := left(t, id); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// A run on LocalStack judges what LocalStack does as AWS does, names the other
// claims, and leaves nothing. The policy that the program prints allows each call that
// it makes. No other test runs at that time: the store gives up calls that take long.
func TestRun(t *testing.T) {
	const id = "right"
	file := filepath.Join(t.TempDir(), "report.json")
	var out strings.Builder
	if err := command(t.Context(), []string{"run", "--id", id, "--json", file}, strings.NewReader("0000\n"), &out, t.Output()); err != nil {
		t.Error(err)
	}
	wantNothingLeft(t, id)
	for _, part := range []string{"account 000000000000", "region us-east-1", "DOLLARS", "CLAIM", "report: " + file, "AWS keeps"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is missing in:\n%s", part, &out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]verdict{}
	for _, row := range r.Rows {
		verdicts[row.Claim] = row.Verdict
	}
	if want := map[string]verdict{
		"kill": holds, "permissions": onlyOnAWS, "refused units": onlyOnAWS, "metrics": onlyOnAWS, "alarms": onlyOnAWS, "clocks": onlyOnAWS,
	}; !maps.Equal(verdicts, want) {
		t.Errorf("got %v, want %v", verdicts, want)
	}
	if when, err := time.Parse(time.RFC3339, r.Date); err != nil || time.Since(when) > time.Hour || len(r.Commit) < 40 ||
		!strings.Contains(r.SDK, "aws-sdk-go-v2 1.") || r.Region != "us-east-1" || !r.LocalStack {
		t.Errorf("the report is of %s %s %s %s (%v)", r.Date, r.Commit, r.SDK, r.Region, err)
	}
	allowed := map[string]bool{}
	for _, s := range policyOf(t) {
		for _, action := range s.Action {
			allowed[action] = true
		}
	}
	seen := 0
	for call := range called.Range {
		seen++
		if action, needed := actionOf(call.(string)); needed && !allowed[action] {
			t.Errorf("the policy does not allow %s, which %s needs", action, call)
		}
	}
	if seen < 15 {
		t.Errorf("only %d calls were seen", seen)
	}
}

// actionOf returns the action that allows a call, where it has another name.
func actionOf(call string) (action string, needed bool) {
	service, operation, _ := strings.Cut(call, ":")
	prefix := map[string]string{"CloudWatch Logs": "logs"}[service]
	if prefix == "" {
		prefix = strings.ToLower(service)
	}
	switch operation {
	case "HeadBucket", "ListObjectsV2":
		operation = "ListBucket"
	case "Invoke":
		operation = "InvokeFunction"
	case "TransactWriteItems":
		return "", false // its writes are allowed one by one
	}
	return prefix + ":" + operation, true
}

// A wrong stack makes its claim false. LocalStack shows this one; the others are
// judged from recorded answers, and their templates differ from the right one as they
// should.
func TestWrongStack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.json")
	p := start(t, nil, "", "run", "--yes", "--id", "wrong", "--wrong", "margin", "--claims", "kill", "--json", file)
	printed, err := p.end()
	if !errors.As(err, new(*exec.ExitError)) {
		t.Errorf("the run succeeded: %s", printed)
	}
	if !strings.Contains(printed, "kill is false: ") {
		t.Errorf("kill is not false:\n%s", printed)
	}
	wantNothingLeft(t, "wrong")
}

// Each wrong stack differs from the right one where it should.
func TestWrongTemplates(t *testing.T) {
	t.Parallel()
	s := shape{
		ID: "t", Account: "123456789012", Region: "eu-central-1", Arch: "arm64", RolePrefix: "team-", Boundary: "arn:aws:iam::123456789012:policy/b",
		Replicas: []string{"eu-west-1", "eu-west-3"},
	}
	text, err := templateOf(s)
	if err != nil {
		t.Fatal(err)
	}
	right := []byte(text)
	if len(right) > 51_200 {
		t.Errorf("the template has %d bytes, too many for a call", len(right))
	}
	var parsed any
	if err := json.Unmarshal(right, &parsed); err != nil {
		t.Fatal(err)
	}
	for name, gone := range map[string]string{
		"grant": `"verify#`, "margin": "", "alarm": `"AlarmActions"`,
	} {
		wrong, err := spoil(parsed, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if gone == "" {
			if !bytes.Contains(wrong, []byte(`"MARGIN":"1ms"`)) {
				t.Errorf("%s: the margin is not set", name)
			}
		} else if !bytes.Contains(right, []byte(gone)) || bytes.Contains(wrong, []byte(gone)) {
			t.Errorf("%s: %s is not only in the right template", name, gone)
		}
	}
	var resources struct {
		Resources map[string]struct {
			Type, DeletionPolicy string
			Properties           struct {
				RoleName            string
				PermissionsBoundary string
			}
		}
	}
	if err := json.Unmarshal(right, &resources); err != nil {
		t.Fatal(err)
	}
	roles := 0
	for name, r := range resources.Resources {
		if r.DeletionPolicy == "Retain" {
			t.Errorf("%s stays when the stack is removed", name)
		}
		if r.Type == "AWS::IAM::Role" {
			roles++
			if !strings.HasPrefix(r.Properties.RoleName, "team-once-verify-t-") || r.Properties.PermissionsBoundary != s.Boundary {
				t.Errorf("%s: %+v", name, r.Properties)
			}
		}
	}
	if roles != 2 {
		t.Errorf("%d roles, want one for each function", roles)
	}
	if n, others := strings.Count(text, `"MultiRegionConsistency":"STRONG"`), strings.Count(text, `"Region":"eu-west-`); n != 1 || others != 2 {
		t.Errorf("%d tables have strong consistency, with %d other regions; want one, with two", n, others)
	}
	if _, err := spoil(parsed, []string{"none"}); err == nil {
		t.Error("an unknown wrong is accepted")
	}
}

// Before anything is created, a run is refused without credentials, without the
// digits, above the price, with an id that exists, and with arguments that are invalid.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const id = "refused"
	for name, c := range map[string]struct {
		env   []string
		stdin string
		args  []string
		want  string
	}{
		"no credentials": {[]string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, "0000\n", nil, "no usable AWS credentials: set AWS_PROFILE"},
		"no region":      {[]string{"AWS_REGION="}, "0000\n", nil, "no region: set AWS_REGION"},
		"no answer":      {nil, "", nil, "not confirmed: nothing was created"},
		"other digits":   {nil, "1234\n", nil, "not confirmed: nothing was created"},
		"the price":      {nil, "0000\n", []string{"--max", "0.01"}, "the estimate of $0.13 is above --max 0.01"},
		"no Node":        {[]string{"PATH=/nowhere"}, "0000\n", nil, "node is missing"},
		"a claim":        {nil, "0000\n", []string{"--claims", "kill,other"}, `invalid claims ["kill" "other"]`},
		"an argument":    {nil, "0000\n", []string{"now"}, `unexpected argument "now"`},
		"LocalStack":     {nil, "0000\n", []string{"--replicas", "us-east-2,us-west-2"}, "--replicas is only on AWS"},
		"one replica":    {nil, "0000\n", []string{"--replicas", "us-east-2"}, `invalid replicas ["us-east-2"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed, err := start(t, c.env, c.stdin, append([]string{"run", "--id", id}, c.args...)...).end()
			if err == nil || !strings.Contains(printed, c.want) {
				t.Errorf("got %v, %s; want %q", err, printed, c.want)
			}
		})
	}
	t.Cleanup(func() { wantNothingLeft(t, id) })
}

// A run whose id has a stack or a bucket is refused, and touches neither.
func TestExistingID(t *testing.T) {
	t.Parallel()
	const id = "taken"
	ctx, cfg := t.Context(), engine.Config(os.Getenv("AWS_ENDPOINT_URL"))
	refused := func(want string) {
		t.Helper()
		printed, err := start(t, nil, "", "run", "--yes", "--id", id).end()
		if err == nil || !strings.Contains(printed, want) {
			t.Errorf("got %v, %s; want %q", err, printed, want)
		}
	}
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(nameOf(id))}); err != nil {
		t.Fatal(err)
	}
	refused("a bucket once-verify-taken may exist")
	stacks := cloudformation.NewFromConfig(cfg)
	if _, err := stacks.CreateStack(ctx, &cloudformation.CreateStackInput{
		StackName: aws.String(nameOf(id)), TemplateBody: aws.String(`{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"}}}`),
	}); err != nil {
		t.Fatal(err)
	}
	refused("a stack once-verify-taken exists")
	if names := left(t, id); len(names) != 2 {
		t.Errorf("left %q, want the stack and the bucket", names)
	}
	// Nor does destroy: no run created this stack.
	if printed, err := start(t, nil, "", "destroy", id).end(); err == nil || !strings.Contains(printed, "the stack once-verify-taken is left") {
		t.Errorf("got %v, %s; want that the stack is left", err, printed)
	}
	if names := left(t, id); len(names) != 2 {
		t.Errorf("left %q, want the stack and the bucket", names)
	}
}

// A run that is killed, while it deploys, checks or removes, has said how to remove what it leaves, and
// that command removes it. An interrupt lets the run do so itself, and a second one
// ends it at once.
func TestKilled(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		stage   string
		signals []os.Signal
	}{
		{"bucket", []os.Signal{syscall.SIGKILL}},
		{"requested", []os.Signal{syscall.SIGKILL}},
		{"stack created", []os.Signal{syscall.SIGKILL}},
		{"removal of stack", []os.Signal{syscall.SIGKILL}},
		{"requested", []os.Signal{os.Interrupt}},
		{"stack created", []os.Signal{os.Interrupt, os.Interrupt}},
	} {
		t.Run(fmt.Sprint(c.stage, c.signals), func(t *testing.T) {
			t.Parallel()
			id := fmt.Sprint("killed", i)
			// Without an interrupt, the run would end with an error because of its report.
			p := start(t, nil, "", "run", "--yes", "--id", id, "--claims", "permissions", "--json", "/dev/null/none")
			p.await(t, c.stage)
			for n, signal := range c.signals {
				if n > 0 {
					p.await(t, "removing everything")
				}
				if err := p.cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
			printed, err := p.end()
			if err == nil {
				t.Errorf("the run succeeded: %s", printed)
			}
			remove := "destroy " + id + " --region us-east-1"
			if !strings.Contains(printed, remove) {
				t.Errorf("%q is missing in %s", remove, printed)
			}
			if itself := len(c.signals) == 1 && c.signals[0] != syscall.SIGKILL; itself != strings.Contains(printed, "AWS keeps") {
				t.Errorf("the run removed everything itself: %v, want %v: %s", !itself, itself, printed)
			} else if itself {
				wantNothingLeft(t, id)
			}
			for range 2 { // a second time it has nothing to do
				if printed, err := start(t, nil, "", "destroy", id).end(); err != nil {
					t.Errorf("%v: %s", err, printed)
				}
				wantNothingLeft(t, id)
			}
		})
	}
}

// The claim about regions gets its answers, here from two clients of one table.
func TestRegions(t *testing.T) {
	t.Parallel()
	const id = "regions"
	w, err := newWorld(t.Context(), shape{ID: id, Region: "us-east-1", Replicas: []string{"us-east-1", "us-east-2"}}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	w.outputs = map[string]string{"Strong": nameOf(id)}
	if err := engine.CreateTable(t.Context(), w.dynamodb, nameOf(id), "pk"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.dynamodb.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: aws.String(nameOf(id))})
	})
	if r := regions.run(t.Context(), w); r.Verdict != onlyOnAWS || r.Seen != "0 of 20 keys ran twice" {
		t.Errorf("got %+v", r)
	}
}

// policy prints a policy that is limited to names of the program.
func TestPolicy(t *testing.T) {
	t.Parallel()
	created, replicated := false, false
	for _, s := range policyOf(t, "--account", "123456789012", "--region", "eu-central-1", "--role-prefix", "team-", "--boundary", "arn:b", "--replicas", "eu-west-1,eu-west-3") {
		if s.Effect != "Allow" || len(s.Action) == 0 || slices.ContainsFunc(s.Action, func(a string) bool { return strings.Contains(a, "*") }) {
			t.Errorf("%+v", s)
		}
		for _, r := range s.Resource {
			named := strings.Contains(r, "once-verify-*") || strings.HasSuffix(r, "/replication.dynamodb.amazonaws.com/*")
			if r != "*" && (!named || strings.Contains(r, "::*:") || strings.Contains(r, ":*:123456789012")) {
				t.Errorf("the resource is not limited: %s", r)
			}
			replicated = replicated || r == "arn:aws:dynamodb:eu-west-3:123456789012:table/once-verify-*"
		}
		if slices.Contains(s.Action, "iam:CreateRole") {
			created = true
			if s.Condition["StringEquals"]["iam:PermissionsBoundary"] != "arn:b" || s.Resource[0] != "arn:aws:iam::123456789012:role/team-once-verify-*" {
				t.Errorf("roles: %+v", s)
			}
		}
	}
	if !created || !replicated {
		t.Errorf("the policy allows the roles: %v, the replicas: %v", created, replicated)
	}
}

// statement is a statement of the policy.
type statement struct {
	Effect           string
	Action, Resource []string
	Condition        map[string]map[string]string
}

// policyOf returns what the subcommand policy prints.
func policyOf(t *testing.T, args ...string) []statement {
	t.Helper()
	var out bytes.Buffer
	var policy struct{ Statement []statement }
	err := command(t.Context(), append([]string{"policy"}, args...), nil, &out, io.Discard)
	if err != nil || json.Unmarshal(out.Bytes(), &policy) != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	return policy.Statement
}
