package house

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/tests/engine"
)

const root = "github.com/once-lambda/once"

// deps returns all dependencies of a package, without tests, in the module that
// contains it.
func deps(t *testing.T, dir string, packages ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
	cmd.Dir = engine.Root() + "/" + dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %v: %v", packages, err)
	}
	return strings.Fields(string(out))
}

// standard reports whether a package is in the standard library: the first
// element of its path has no dot.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}

func within(pkg, tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") }

const (
	awsSDK    = "github.com/aws/aws-sdk-go-v2"
	awsLambda = "github.com/aws/aws-lambda-go"
	awsCDK    = "github.com/aws/aws-cdk-go"
	jsonExp   = "github.com/go-json-experiment/json"
	bbolt     = "go.etcd.io/bbolt"
)

// Dependencies point inward: what each package may depend on besides the
// standard library and its own module.
func TestArrowsPointInward(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		dir, pkg string
		may      []string // trees outside the standard library
	}{
		{".", root + "/idempotent", []string{root + "/idempotent", root + "/internal/canonical", jsonExp}},
		{".", root + "/idempotent/memstore", []string{root + "/idempotent", root + "/internal/canonical", jsonExp}},
		{".", root + "/idempotent/idempotenttest", []string{root + "/idempotent", root + "/internal/canonical", root + "/internal/errtype", jsonExp}},
		{".", root + "/lambdahttp", []string{root + "/lambdahttp", root + "/idempotent", root + "/internal/canonical", root + "/internal/jsonpointer", root + "/internal/sfv", jsonExp, awsLambda}},
		{".", root + "/lambdabatch", []string{root + "/lambdabatch", root + "/idempotent", root + "/internal/canonical", root + "/internal/jsonpointer", jsonExp, awsLambda}},
		{".", root + "/telemetry/emf", []string{root + "/telemetry", root + "/idempotent", root + "/internal/canonical", jsonExp}},
		{".", root + "/telemetry/audit", []string{root + "/telemetry", root + "/idempotent", root + "/internal/canonical", jsonExp}},
		{"telemetry/otel", root + "/telemetry/otel", []string{
			root + "/telemetry", root + "/idempotent", root + "/internal/canonical", jsonExp,
			"go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr", "github.com/cespare/xxhash/v2",
		}},
		{".", root + "/dynamostore", []string{root + "/dynamostore", root + "/idempotent", root + "/internal/canonical", jsonExp, awsSDK, "github.com/aws/smithy-go"}},
		{"boltstore", root + "/boltstore", []string{root + "/boltstore", root + "/idempotent", root + "/internal/canonical", jsonExp, bbolt, "golang.org/x/sys"}},
		{"cmd/once", root + "/cmd/once", []string{
			root + "/cmd/once", root + "/boltstore", root + "/dynamostore", root + "/lambdahttp", root + "/idempotent", root + "/internal/canonical", root + "/internal/jsonpointer", root + "/internal/sfv",
			jsonExp, bbolt, awsSDK, awsLambda, "github.com/aws/smithy-go", "github.com/spf13", "golang.org/x/sys", "golang.org/x/term",
		}},
		{"infra", root + "/infra", []string{
			root + "/infra", root + "/dynamostore", root + "/telemetry", root + "/idempotent", root + "/internal/canonical", jsonExp, awsSDK,
			"github.com/aws/smithy-go", awsCDK, "github.com/aws/constructs-go", "github.com/aws/jsii-runtime-go", "github.com/cdklabs",
			"github.com/Masterminds/semver/v3", "github.com/fatih/color", "github.com/mattn", "golang.org/x/sys",
		}},
		{stackDir, root + "/" + stackDir + "/bundle", []string{root + "/" + stackDir}},
	} {
		for _, pkg := range deps(t, rule.dir, rule.pkg) {
			if !standard(pkg) && !slices.ContainsFunc(rule.may, func(tree string) bool { return within(pkg, tree) }) {
				t.Errorf("%s reaches %s", rule.pkg, pkg)
			}
		}
	}
}

// Telemetry depends only on OpenTelemetry's API: the program chooses the SDK,
// if any.
func TestNoSDKInTelemetry(t *testing.T) {
	t.Parallel()
	for _, pkg := range deps(t, "telemetry/otel", root+"/telemetry/otel") {
		if within(pkg, "go.opentelemetry.io/otel/sdk") {
			t.Errorf("telemetry/otel depends on %s", pkg)
		}
	}
}

// The core depends only on the standard library, its own packages, and
// jsontext, the latter only through internal/canonical.
func TestCoreReachesLittle(t *testing.T) {
	t.Parallel()
	for _, pkg := range deps(t, ".", root+"/idempotent") {
		if within(pkg, jsonExp) && !within(pkg, jsonExp+"/jsontext") && !within(pkg, jsonExp+"/internal") {
			t.Errorf("the core depends on %s, not only on jsontext", pkg)
		}
		if within(pkg, root) && pkg != root+"/idempotent" && pkg != root+"/idempotent/driver" && pkg != root+"/idempotent/event" && pkg != root+"/internal/canonical" {
			t.Errorf("the core depends on an outer package: %s", pkg)
		}
		if pkg == "testing" {
			t.Error("the core depends on testing")
		}
	}
	direct := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, root+"/idempotent")
	direct.Dir = engine.Root()
	out, err := direct.Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), jsonExp) {
		t.Error("idempotent imports jsontext directly; use internal/canonical")
	}
}

const stackDir = "examples/charge-lambda/stack"

// The CDK is heavy and runs on Node: only infra and the example's stack depend on
// it, tests included, and the command that builds bundles does not.
func TestOnlyInfraAndTheStackReachTheCDK(t *testing.T) {
	t.Parallel()
	refuse := func(dir string, args ...string) {
		t.Helper()
		for _, pkg := range deps(t, dir, args...) {
			if within(pkg, awsCDK) {
				t.Errorf("%s %v reaches %s", dir, args, pkg)
				return
			}
		}
	}
	seen := 0
	for _, name := range tracked(t, "go.mod") {
		if dir := filepath.Dir(name); dir != "infra" && dir != stackDir && dir != "tools" { // tools are not in the workspace
			seen++
			refuse(dir, "-test", "./...")
		}
	}
	refuse(stackDir, "-test", "./bundle")
	if seen < 7 {
		t.Errorf("only %d modules were found", seen)
	}
	if !slices.ContainsFunc(deps(t, "infra", "."), func(pkg string) bool { return within(pkg, awsCDK) }) {
		t.Error("infra does not depend on the CDK: the check is empty")
	}
}

// No package for users depends on a test library.
func TestNoTestLibraryOutsideTests(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "boltstore", "cmd/once", "telemetry/otel", "infra", "examples/charge-lambda", stackDir, "examples/order-queue"} {
		cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
		cmd.Dir = engine.Root() + "/" + dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			pkg, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
			for imported := range strings.FieldsSeq(imports) {
				if imported == "testing" && !strings.HasSuffix(pkg, "test") {
					t.Errorf("%s imports testing", pkg)
				}
			}
		}
	}
}
