package infra_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/internal/doctest"
)

// The permissions in the guide equal those that the constructs grant.
func TestPermissionsInTheGuide(t *testing.T) {
	var table strings.Builder
	table.WriteString("| who | on | may |\n| --- | --- | --- |\n")
	for _, row := range []struct {
		who, on string
		actions []string
	}{
		{"handler", "the table", infra.HandlerActions},
		{"reconciler", "the table", infra.ReconcilerActions},
		{"", "its index, `…/index/" + dynamostore.IndexName + "`", infra.IndexActions},
	} {
		fmt.Fprintf(&table, "| %s | %s | `%s` |\n", row.who, row.on, strings.Join(row.actions, "`, `"))
	}
	doctest.Part(t, "../docs/deploy.md", "permissions", table.String(), *update)
}

var (
	metricNames = regexp.MustCompile(`"MetricName":"(?:api\.idempotency\.)?([^"]+)"`)
	numbered    = regexp.MustCompile(`[0-9]+$`)
)

// The alarms in the guide equal those that the construct creates.
func TestAlarmsInTheGuide(t *testing.T) {
	const operation = "charge"
	stack := newStack(t)
	alarms := watch(stack, operation)
	made := map[string]resource{}
	for _, r := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		made[r.id] = r
	}
	var table strings.Builder
	table.WriteString("| alarm | on | when | description |\n| --- | --- | --- | --- |\n")
	rows := map[string]bool{}
	for _, alarm := range alarms.Alarms {
		name, _, _ := strings.Cut(numbered.ReplaceAllString(*alarm.Node().Id(), ""), "-")
		if rows[name] {
			continue // the alarm of another queue
		}
		rows[name] = true
		r := made[*stack.GetLogicalId(alarm.Node().DefaultChild().(awscdk.CfnElement))]
		var on []string
		for _, metric := range metricNames.FindAllStringSubmatch(asJSON(t, r.Properties), -1) {
			on = append(on, metric[1])
		}
		slices.Sort(on)
		if name == "Misuse" { // a share of all requests
			on = slices.DeleteFunc(on, func(metric string) bool { return metric != "reserve.key_misuse.count" })
		}
		minutes := "a minute"
		if n := r.Properties["EvaluationPeriods"].(float64); n > 1 {
			minutes = fmt.Sprintf("each of %v minutes", n)
		}
		said := strings.TrimPrefix(r.Properties["AlarmDescription"].(string), operation+": ")
		said = strings.ReplaceAll(said, "Test/Reconciler/Exhausted", "the queue")
		fmt.Fprintf(&table, "| `%s` | `%s` | > %v in %s | %s |\n", name, strings.Join(on, "`, `"), r.Properties["Threshold"], minutes, said)
	}
	doctest.Part(t, "../docs/observe.md", "alarms", table.String(), *update)
}
