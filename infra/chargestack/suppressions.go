package chargestack

import (
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// What cdk-nag's AwsSolutions rules say of this stack and why it stays so.

// suppress says why rules do not hold for a construct and what is below it.
func suppress(c constructs.IConstruct, reasons map[string]string) {
	for rule, reason := range reasons {
		cdknag.NagSuppressions_AddResourceSuppressions(c, &[]*cdknag.NagPackSuppression{
			{Id: jsii.String(rule), Reason: jsii.String(reason)},
		}, jsii.Bool(true))
	}
}

var (
	apiReasons = map[string]string{
		"AwsSolutions-APIG2": "The function checks requests itself and says in the problem's words what is wrong with them.",
		"AwsSolutions-APIG3": "Which web ACL an API wants is a matter of the account it is in; an example has none.",
		"AwsSolutions-APIG4": "The callers are services that hold an API key, which is also the scope of their idempotency keys.",
		"AwsSolutions-APIG6": "Access logs are on. Execution logs would hold payloads.",
		"AwsSolutions-COG4":  "The callers are services, not users of a pool.",
	}
	handedOverReasons = map[string]string{
		"AwsSolutions-SQS3": "This is where messages wait for people, as in a dead-letter queue; an alarm tells of each.",
	}
)
