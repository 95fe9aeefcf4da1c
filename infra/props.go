// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// refuse makes synthesis fail with a message that says what to change.
func refuse(c constructs.IConstruct, message string) {
	awscdk.Annotations_Of(c).AddError(jsii.String(message))
}

// or returns the value of a property, or otherwise if it is nil.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// duration returns d, or otherwise if d is nil.
func duration(d awscdk.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return time.Duration(*d.ToMilliseconds(nil)) * time.Millisecond
}

// lasting returns d as a duration of the CDK.
func lasting(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}

// seconds is duration for a property of CloudFormation.
func seconds(n *float64, otherwise time.Duration) time.Duration {
	if n == nil {
		return otherwise
	}
	return time.Duration(*n * float64(time.Second))
}

// inWords formats a duration with days.
func inWords(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 0 {
		if rest := d % (24 * time.Hour); rest > 0 {
			return fmt.Sprintf("%d days and %v", days, rest)
		}
		return fmt.Sprintf("%d days", days)
	}
	return d.String()
}
