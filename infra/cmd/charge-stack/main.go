// Command charge-stack is the CDK app of the example. It reads the context
// values providerUrl, and optionally arch, orderTimeout, root and stack.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/once-lambda/once/infra/chargestack"
	"github.com/once-lambda/once/infra/internal/node"
)

func main() { node.Run(synth) }

func synth() int {
	app := awscdk.NewApp(nil)
	if err := build(app); err != nil {
		fmt.Fprintln(os.Stderr, "charge-stack:", err)
		return 1
	}
	app.Synth(nil)
	return 0
}

func build(app awscdk.App) error {
	get := func(name, otherwise string) string {
		if value, ok := app.Node().TryGetContext(jsii.String(name)).(string); ok {
			return value
		}
		return otherwise
	}
	props := chargestack.Props{Root: get("root", ".."), Arch: get("arch", ""), ProviderURL: get("providerUrl", "")}
	if props.ProviderURL == "" {
		return fmt.Errorf("the payment provider's address is missing: set it with -c providerUrl=https://…")
	}
	if props.Arch != "" && props.Arch != "arm64" && props.Arch != "amd64" {
		return fmt.Errorf("invalid arch %q: must be arm64 or amd64", props.Arch)
	}
	if timeout := get("orderTimeout", ""); timeout != "" {
		var err error
		if props.OrderTimeout, err = strconv.ParseFloat(timeout, 64); err != nil || props.OrderTimeout < 1 || props.OrderTimeout > 900 {
			return fmt.Errorf("invalid orderTimeout %q: must be seconds from 1 to 900", timeout)
		}
	}
	chargestack.New(app, get("stack", "ChargeStack"), props)
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	return nil
}
