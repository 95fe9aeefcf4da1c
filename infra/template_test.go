// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

// parameters of alarms.json, and what the CDK has in their place.
var parameters = []struct{ name, cdk, description, otherwise string }{
	{"Namespace", "NAMESPACE", "The namespace of the function's metrics: its ONCE_METRICS_NAMESPACE", ""},
	{"Operation", "OPERATION", "An operation whose requests the alarms watch, or nothing for all operations of the namespace", "-"},
	{"Table", "RecordsTable", "The table of the records", ""},
	{"PageTopic", "arn:aws:sns:eu-west-1:123456789012:page", "The topic for conditions that need an operator at once", ""},
	{"TicketTopic", "arn:aws:sns:eu-west-1:123456789012:ticket", "The topic for single records that need an operator within a day", ""},
	{"Function", "Charge", "The name of the function whose errors raise an alarm, or nothing. FunctionFails sees only time-outs below 10 minutes", "-"},
	{"DeadLetterQueue", "Dead.QueueName", "The name of a queue that should stay empty, or nothing", "-"},
	{"Reconciler", "Reconcile", "The name of the function that settles unknown outcomes every minute, or nothing", "-"},
	{"ExhaustedQueue", "ReconcilerExhausted.QueueName", "The name of the queue of the records that it has given up, or nothing", "-"},
	{"UndeliveredQueue", "ReconcilerUndelivered.QueueName", "The name of the queue of the events that did not reach it, or nothing", "-"},
}

// G12: alarms.json has every property of the alarms of an operation or of all, as the CDK
// synthesises them with a reconciler and without. The simulations of
// tests/promised/alarms evaluate it.
func TestAlarmsTemplate(t *testing.T) {
	out := map[string]any{
		"AWSTemplateFormatVersion": "2010-09-09",
		"Description":              "The alarms of a service, or of one of its operations",
	}
	set := func(parameter string) map[string]any {
		return map[string]any{"Fn::Not": []any{unset(parameter)}}
	}
	out["Conditions"] = map[string]any{
		"Reconciled": set("Reconciler"), "NotReconciled": unset("Reconciler"), "HasDeadLetterQueue": set("DeadLetterQueue"),
		"HasFunction": set("Function"), "OfOneOperation": set("Operation"),
		"HasExhaustedQueue": set("ExhaustedQueue"), "HasUndeliveredQueue": set("UndeliveredQueue"),
	}
	in := map[string]any{}
	for _, p := range parameters {
		in[p.name] = map[string]any{"Type": "String", "Description": p.description}
		if p.otherwise != "" {
			in[p.name].(map[string]any)["Default"] = ""
		}
	}
	out["Parameters"] = in
	with, without := alarmsOf(t, true), alarmsOf(t, false)
	made := map[string]any{}
	for name, alarm := range with {
		switch {
		case name == "Unknown":
			made["UnknownOften"] = when("Reconciled", alarm)
		case name == "DeadLetters0":
			made["Exhaustion"] = when("HasExhaustedQueue", alarm)
		case name == "DeadLetters1":
			made["Undelivered"] = when("HasUndeliveredQueue", alarm)
		case without[name] == nil:
			made[name] = when("Reconciled", alarm)
		case strings.HasPrefix(name, "Function"):
			made[name] = when("HasFunction", alarm)
		case asJSON(t, alarm) != asJSON(t, without[name]):
			t.Errorf("%s is different without a reconciler", name)
		default:
			made[name] = alarm
		}
	}
	made["Unknown"] = when("NotReconciled", without["Unknown"])
	made["DeadLetters"] = when("HasDeadLetterQueue", without["DeadLetters0"])
	out["Resources"] = made
	wantFile(t, "alarms.json", out)
}

func unset(parameter string) map[string]any {
	return map[string]any{"Fn::Equals": []any{map[string]any{"Ref": parameter}, ""}}
}

func when(condition string, alarm map[string]any) map[string]any {
	alarm["Condition"] = condition
	return alarm
}

// alarmsOf returns the alarms by name, with references to the parameters.
func alarmsOf(t *testing.T, reconciled bool) map[string]map[string]any {
	t.Helper()
	made, ofAll := alarmsFor(t, reconciled, jsii.Strings("OPERATION")), alarmsFor(t, reconciled, nil)
	if len(made) != len(ofAll) {
		t.Fatalf("%d alarms of an operation, %d of all", len(made), len(ofAll))
	}
	for name := range made {
		made[name] = either("OfOneOperation", made[name], ofAll[name]).(map[string]any)
	}
	return made
}

// either returns what is yes under a condition and no otherwise. A member that only yes
// has is left out otherwise.
func either(condition string, yes, no any) any {
	if reflect.DeepEqual(yes, no) {
		return yes
	}
	y, object := yes.(map[string]any)
	n, also := no.(map[string]any)
	if object && also && y["Fn::Sub"] == nil {
		for member := range y {
			y[member] = either(condition, y[member], n[member])
		}
		return y
	}
	if y, list := yes.([]any); list && no != nil {
		for i := range y {
			y[i] = either(condition, y[i], no.([]any)[i])
		}
		return y
	}
	if no == nil {
		no = map[string]any{"Ref": "AWS::NoValue"}
	}
	return map[string]any{"Fn::If": []any{condition, yes, no}}
}

func alarmsFor(t *testing.T, reconciled bool, operations *[]*string) map[string]map[string]any {
	t.Helper()
	stack := newStack()
	topic := func(name string) awssns.ITopic {
		return awssns.Topic_FromTopicArn(stack, jsii.String(name), jsii.String("arn:aws:sns:eu-west-1:123456789012:"+name))
	}
	props := &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("NAMESPACE"), Operations: operations, Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
		Functions: &[]awslambda.IFunction{newFunction(stack, "Charge", 10)}, Page: topic("page"), Ticket: topic("ticket"),
	}
	if reconciled {
		props.Reconciler = infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
			Function: newFunction(stack, "Reconcile", 60), Table: props.Table,
		})
	} else {
		props.DeadLetterQueues = &[]awssqs.IQueue{awssqs.NewQueue(stack, jsii.String("Dead"), nil)}
	}
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), props)
	out := map[string]map[string]any{}
	for _, r := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		var properties map[string]any
		plainNames(t, r.Properties, &properties)
		id := strings.TrimPrefix(name(r.id), "Alarms")
		for _, suffix := range []string{"OPERATION", "Charge"} {
			id = strings.TrimSuffix(id, suffix)
		}
		out[id] = map[string]any{"Type": "AWS::CloudWatch::Alarm", "Properties": parameterised(properties)}
	}
	return out
}

// parameterised replaces values by references to the parameters.
func parameterised(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for member := range v {
			v[member] = parameterised(v[member])
		}
	case []any:
		for i := range v {
			v[i] = parameterised(v[i])
		}
	case string:
		for _, p := range parameters {
			if v == p.cdk {
				return map[string]any{"Ref": p.name}
			}
		}
		text := strings.NewReplacer("OPERATION: ", "${Operation}: ", "function Test/Charge ", "function ${Function} ", "in Test/Dead.", "in ${DeadLetterQueue}.",
			"in Test/Reconciler/Exhausted.", "in ${ExhaustedQueue}.", "in Test/Reconciler/Undelivered.", "in ${UndeliveredQueue}.").Replace(v)
		if text != v {
			return map[string]any{"Fn::Sub": text}
		}
	}
	return v
}
