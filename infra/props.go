// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/aws/jsii-runtime-go/runtime"
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

// warn adds a warning to synthesis, which AcknowledgeWarning of the CDK silences
// by its id. It calls AddWarningV2, which has a third, optional parameter from awscdk
// 2.276 on, by its name: so it compiles with all versions.
func warn(c constructs.IConstruct, id, message string) {
	runtime.InvokeVoid(awscdk.Annotations_Of(c), "addWarningV2", []any{jsii.String(id), jsii.String(message)})
}

// length is a duration that a construct judges. It is unknown if it is a token,
// such as a parameter of the stack, or a property of an imported resource. Then the
// duration is the least that it can be, zero.
type length struct {
	time.Duration
	unknown bool
}

// lengthOf returns d, or otherwise if d is nil.
func lengthOf(d awscdk.Duration, otherwise time.Duration) length {
	switch {
	case d == nil:
		return length{Duration: otherwise}
	case *d.IsUnresolved():
		return length{unknown: true}
	}
	return length{Duration: time.Duration(*d.ToMilliseconds(&awscdk.TimeConversionOptions{Integral: jsii.Bool(false)}) * float64(time.Millisecond))}
}

// secondsOf is lengthOf for a property of CloudFormation.
func secondsOf(n *float64, otherwise time.Duration) length {
	switch {
	case n == nil:
		return length{Duration: otherwise}
	case isToken(n):
		return length{unknown: true}
	}
	return length{Duration: time.Duration(*n * float64(time.Second))}
}

// under reports whether l is known and shorter than what is needed at least.
func (l length) under(needed time.Duration) bool { return !l.unknown && l.Duration < needed }

// isToken reports whether the CDK knows a value only at the deployment.
func isToken(v any) bool { return *awscdk.Token_IsUnresolved(v) }

// sameAccount reports whether two accounts are equal, as far as synthesis can
// decide.
func sameAccount(a, b *string) bool {
	same := awscdk.Token_CompareStrings(a, b)
	return same == awscdk.TokenComparison_SAME() || same == awscdk.TokenComparison_BOTH_UNRESOLVED()
}

// functionBehind returns the function that this app creates, directly or behind
// an alias or a version. It returns nil for any other grantee, such as a role or
// an imported function.
func functionBehind(to awsiam.IGrantable) awslambda.Function {
	switch fn := to.(type) {
	case awslambda.Function:
		return fn
	case awslambda.IAlias:
		return functionBehind(fn.Version())
	case awslambda.IVersion:
		return functionBehind(fn.Lambda())
	}
	return nil
}

// lacksRole refuses a function that is imported without its role. The CDK would stop
// with its own error.
func lacksRole(c constructs.Construct, fn awslambda.IFunction) bool {
	if fn.Role() != nil {
		return false
	}
	refuse(c, "the function "+*fn.Node().Path()+" is imported without its role, so it cannot get permissions: import it with Function_FromFunctionAttributes, and set Role")
	return true
}

// variable is a variable of a function. Without a value the function must not have it.
type variable struct {
	name  string
	value *string
}

// metricsNamespace is the variable that functions pass to emf.New. It has no name of a table:
// a function has one namespace.
const metricsNamespace = "ONCE_METRICS_NAMESPACE"

// variableNote is a note of a variable that a construct has set.
const variableNote = "once:variable"

// setVariables sets variables of the function that this app creates, and reports
// whether there is one. It refuses a variable that has another value already: the
// code of the function would use one of the two tables, or neither.
func setVariables(by constructs.IConstruct, to awsiam.IGrantable, all ...variable) bool {
	fn := functionBehind(to)
	if fn == nil {
		return false
	}
	conflicts := map[string][]string{} // names of variables, by what has set them
	for _, v := range all {
		if setter, same := valueOf(fn, v); setter == "" {
			note(fn, variableNote, map[string]any{"name": v.name, "value": plain(v.value), "by": *by.Node().Path()})
			if v.value != nil {
				fn.AddEnvironment(jsii.String(v.name), v.value, nil)
			}
		} else if !same {
			conflicts[setter] = append(conflicts[setter], v.name)
		}
	}
	for _, setter := range slices.Sorted(maps.Keys(conflicts)) {
		advice := "name one of the tables with Named, use a function for each, or remove one of the two"
		if conflicts[setter][0] == metricsNamespace {
			advice = "give both the same Namespace, or use a function for each"
		}
		refuse(by, fmt.Sprintf("%s and %s want different values of %s of the function %s: %s",
			*by.Node().Path(), setter, strings.Join(conflicts[setter], " and "), *fn.Node().Path(), advice))
	}
	return true
}

// valueOf returns what has set a variable of a function: the path of a construct of
// this package, or the function's own properties. It is empty if nothing has. It
// reports whether the value is the same.
func valueOf(fn awslambda.Function, v variable) (setter string, same bool) {
	for _, set := range notes(fn, variableNote) {
		if set["name"] == v.name {
			return set["by"].(string), set["value"] == plain(v.value)
		}
	}
	resource, ok := fn.Node().DefaultChild().(awslambda.CfnFunction)
	if !ok {
		return "", false
	}
	environment, _ := property(resource, "environment").(map[string]any)
	variables, _ := environment["variables"].(map[string]any)
	if own, ok := variables[v.name]; ok && !reflect.DeepEqual(own, awscdk.Stack_Of(fn).Resolve(v.value)) {
		return "the function's own Environment", false
	}
	return "", false
}

// property returns a property of a resource that is an object, as it will be in the
// template, or nil. It does not call the resource's method of that name: with
// jsii-runtime-go 1.142 the method returns an empty object if the CDK computes the
// value later.
func property(of awscdk.CfnResource, name string) any {
	var value awscdk.IResolvable
	runtime.Get(of, name, &value)
	if value == nil {
		return nil
	}
	return awscdk.Stack_Of(of).Resolve(value)
}

// whenComplete calls judge once, when the app is complete and before its templates are
// written.
func whenComplete(c constructs.Construct, judge func()) {
	awscdk.Aspects_Of(c).Add(&judgement{judge: judge}, nil)
}

// judgement is the aspect of whenComplete.
type judgement struct {
	judge func()
	done  bool // it visits the construct's children, too
}

// Visit is called by the CDK for the construct and each of its children.
func (j *judgement) Visit(constructs.IConstruct) {
	if !j.done {
		j.done = true
		j.judge()
	}
}

// note adds a note of a kind to the metadata of a function, for the constructs that are
// created later.
func note(fn awslambda.Function, kind string, content map[string]any) {
	fn.Node().AddMetadata(jsii.String(kind), content, nil)
}

// notes returns the notes of a kind about a function, in the order in which they were
// added.
func notes(fn awslambda.Function, kind string) (all []map[string]any) {
	for _, entry := range *fn.Node().Metadata() {
		if *entry.Type == kind {
			all = append(all, entry.Data.(map[string]any))
		}
	}
	return all
}

// serviceMay returns a statement that allows a service of AWS these actions on a
// resource, for the account of the construct.
func serviceMay(c constructs.IConstruct, service string, resource *string, actions ...string) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions:    jsii.Strings(actions...),
		Resources:  &[]*string{resource},
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String(service), nil)},
		Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Stack_Of(c).Account()}},
	})
}

// plain returns a value as text for metadata, in which the CDK finds no token.
func plain(value *string) string {
	if value == nil {
		return "not set"
	}
	return "=" + strings.ReplaceAll(*value, "${", "{")
}

// lasting returns d as a duration of the CDK.
func lasting(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}

// inWords formats a duration with days.
func inWords(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 0 {
		words := fmt.Sprintf("%d days", days)
		if days == 1 {
			words = "1 day"
		}
		if rest := d % (24 * time.Hour); rest > 0 {
			return fmt.Sprintf("%s and %v", words, rest)
		}
		return words
	}
	return d.String()
}
