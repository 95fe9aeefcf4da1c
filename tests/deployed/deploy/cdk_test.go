// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/once-lambda/once/internal/kit/engine"
)

// stackDir is the folder of the stack, in the repository.
const stackDir = "examples/charge-lambda/stack"

// What the tests deploy besides the stack: the function of these tests, and two of
// the stack's own.
var stubbornArchive, chargeArchive, reconcilerArchive []byte

// build builds the functions for this machine's processor.
func build(ctx context.Context, scratch string) (err error) {
	bundle := []string{"run", "./bundle", "-arch", runtime.GOARCH}
	if err := command(ctx, stackDir, os.Environ(), "go", bundle...); err != nil {
		return err
	}
	const tests = "github.com/once-lambda/once/tests/"
	bundle = append(bundle, "-o", scratch, "stubborn="+tests+"deployed/deploy/functions/stubborn")
	for _, program := range documented {
		bundle = append(bundle, program+"="+tests+"documents/programs/"+program)
	}
	if err := command(ctx, stackDir, os.Environ(), "go", bundle...); err != nil {
		return err
	}
	for program, dir := range map[string]string{onceProgram: "cmd/once", documentedApp: "tests/deployed/deploy/testdata/documented"} {
		if err := command(ctx, ".", os.Environ(), "go", "build", "-o", filepath.Join(scratch, program), "./"+dir); err != nil {
			return err
		}
	}
	bundles := filepath.Join(engine.Root(), ".cache/bundles")
	for path, into := range map[string]*[]byte{
		filepath.Join(bundles, "charge"): &chargeArchive, filepath.Join(bundles, "reconciler"): &reconcilerArchive, filepath.Join(scratch, "stubborn"): &stubbornArchive,
	} {
		if *into, err = os.ReadFile(path + "-" + runtime.GOARCH + ".zip"); err != nil {
			return err
		}
	}
	return nil
}

// Programs in the folder of the tests.
const (
	onceProgram   = "once"
	documentedApp = "documented"
)

const (
	account = "000000000000"
	region  = "us-east-1"
	// orderTimeout is the time-out of the function behind the queue, in seconds.
	orderTimeout = slowest
)

// stackName is a new one each time: LocalStack cannot update a stack that has a
// stage of an API, and loses the stage.
var stackName = "Charge" + rand.Text()[:8]

// cdk is the CDK's command line for LocalStack.
type cdk struct {
	endpoint, scratch, program string
	env                        []string
}

// newCDK installs the version in the stack's lock file, once.
func newCDK(ctx context.Context, scratch, endpoint string) (*cdk, error) {
	said, err := output(ctx, stackDir, os.Environ(), "./cdk", "install")
	if err != nil {
		return nil, err
	}
	programs := strings.TrimSpace(said)
	modules := filepath.Dir(programs)
	c := &cdk{endpoint: endpoint, scratch: scratch, program: filepath.Join(programs, "cdklocal")}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") { // no real account's settings
			c.env = append(c.env, variable)
		}
	}
	c.env = append(c.env, "NODE_PATH="+modules, "PATH="+programs+":"+os.Getenv("PATH"),
		"AWS_ENDPOINT_URL="+endpoint, "AWS_ENDPOINT_URL_S3="+endpoint, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_REGION="+region, "AWS_DEFAULT_REGION="+region, "CDK_DEFAULT_ACCOUNT="+account, "CDK_DEFAULT_REGION="+region,
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
		"CI=true", "CDK_HOME="+scratch, "CDK_DISABLE_VERSION_CHECK=1", "CDK_DISABLE_CLI_TELEMETRY=1",
		// Do not warn about the age of these major versions of Node.
		"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=18,20")
	return c, nil
}

// bootstrap creates what the CDK needs in an account. It needs no app.
func (c *cdk) bootstrap(ctx context.Context) error {
	return command(ctx, c.scratch, c.env, c.program, "bootstrap", "--no-notices", "aws://"+account+"/"+region)
}

// template returns the path of the synthesised stack.
func (c *cdk) template() string {
	return filepath.Join(c.scratch, "cdk.out", stackName+".template.json")
}

// deploy deploys the stack, whose functions charge at the provider's address, and
// returns its outputs.
func (c *cdk) deploy(ctx context.Context, providerURL string) (outputs map[string]string, err error) {
	return c.deployApp(ctx, stackDir, c.scratch, stackName, "-c", "providerUrl="+providerURL, "-c", fmt.Sprintf("orderTimeout=%d", orderTimeout))
}

// deployApp deploys the app of a folder as a stack, with its template and outputs in
// another folder, and returns the outputs.
func (c *cdk) deployApp(ctx context.Context, dir, out, name string, args ...string) (outputs map[string]string, err error) {
	file := filepath.Join(out, "outputs.json")
	args = append([]string{
		"deploy", "--no-notices", "--require-approval", "never", "--output", filepath.Join(out, "cdk.out"), "--outputs-file", file,
		"-c", "stack=" + name, "-c", "arch=" + runtime.GOARCH,
	}, args...)
	if err := command(ctx, dir, c.env, c.program, args...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var stacks map[string]map[string]string
	err = json.Unmarshal(text, &stacks)
	return stacks[name], err
}

// command runs a program in a folder, relative to the repository's root. All
// processes that it started end with it. An error contains the output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	_, err := output(ctx, dir, env, name, args...)
	return err
}

// output is command, and returns the program's standard output.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	if cmd.Dir = dir; !filepath.IsAbs(dir) {
		cmd.Dir = filepath.Join(engine.Root(), dir)
	}
	cmd.Env = env
	var printed, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complained
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, &printed, &complained)
	}
	return printed.String(), nil
}
