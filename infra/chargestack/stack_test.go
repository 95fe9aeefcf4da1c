package chargestack_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/once-lambda/once/infra/bundle"
	"github.com/once-lambda/once/infra/chargestack"
)

// newStack returns the stack with empty bundles.
func newStack(t *testing.T) awscdk.Stack {
	t.Helper()
	root := t.TempDir()
	archive, err := bundle.Archive([]byte("#!/bin/sh\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range bundle.Functions {
		path := filepath.Join(root, bundle.Path(f.Name, "arm64"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, archive, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	s := chargestack.New(app, "Charge", chargestack.Props{Root: root, ProviderURL: "https://provider.test/v1"})
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	return s
}

// Neither the constructs nor cdk-nag report errors or warnings on the stack.
func TestNothingIsRefused(t *testing.T) {
	s := newStack(t)
	for _, m := range *assertions.Annotations_FromStack(s).FindError(jsii.String("*"), assertions.Match_AnyValue()) {
		t.Errorf("%s: %v", *m.Id, m.Entry.Data) //lint:ignore SA1019 there is no other way to it in Go yet
	}
	for _, m := range *assertions.Annotations_FromStack(s).FindWarning(jsii.String("*"), assertions.Match_AnyValue()) {
		t.Errorf("%s: %v", *m.Id, m.Entry.Data) //lint:ignore SA1019 there is no other way to it in Go yet
	}
}
