// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Charges"), nil)

	charges := awslambda.NewFunction(stack, jsii.String("Pay"), &awslambda.FunctionProps{
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: awslambda.Architecture_ARM_64(),
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(jsii.String("bin"), nil),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(10)),
	})
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	records.GrantHandler(charges, jsii.String("pay")) // the rights of the operation, and ONCE_TABLE

	address := charges.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_NONE})
	awscdk.NewCfnOutput(stack, jsii.String("URL"), &awscdk.CfnOutputProps{Value: address.Url()})
	awscdk.NewCfnOutput(stack, jsii.String("Table"), &awscdk.CfnOutputProps{Value: records.Table.TableName()})
	app.Synth(nil)
}
