package chargestack

import (
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// The findings of cdk-nag's AwsSolutions rules for this stack, with the
// reason why each is accepted.

// suppress records why rules do not apply to a construct and its children.
func suppress(c constructs.IConstruct, reasons map[string]string) {
	for rule, reason := range reasons {
		cdknag.NagSuppressions_AddResourceSuppressions(c, &[]*cdknag.NagPackSuppression{
			{Id: jsii.String(rule), Reason: jsii.String(reason)},
		}, jsii.Bool(true))
	}
}

var (
	apiReasons = map[string]string{
		"AwsSolutions-APIG2": "The function validates requests itself and describes errors in problem documents.",
		"AwsSolutions-APIG3": "The web ACL of an API depends on its account; the example has none.",
		"AwsSolutions-APIG4": "The callers are services that hold an API key, which is also the scope of their idempotency keys.",
		"AwsSolutions-APIG6": "Access logs are on. Execution logs would contain payloads.",
		"AwsSolutions-COG4":  "The callers are services, not users of a pool.",
	}
	handedOverReasons = map[string]string{
		"AwsSolutions-SQS3": "Messages wait here for an operator, as in a dead-letter queue; an alarm reports each.",
	}
)
