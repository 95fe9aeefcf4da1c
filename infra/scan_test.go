// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

// scanning returns a stack with a reconciler, whose function has a time-out in
// seconds.
func scanning(timeout float64, change func(*infra.IdempotencyTable), scan *infra.ScanProps) awscdk.Stack {
	stack := newStack()
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	if change != nil {
		change(table)
	}
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: newFunction(stack, "Function", timeout),
		Table:    table,
		Scan:     scan,
	})
	return stack
}

// The function gets the settings of the scan, and synthesis prints its price.
func TestScan(t *testing.T) {
	largeResults := func(t *infra.IdempotencyTable) { t.KeepLargeResultsIn(nil) }
	// The source of a function with a grant is found, although it is connected later.
	withQueue := func(t *infra.IdempotencyTable) {
		fn := newFunction(awscdk.Stack_Of(t.Construct), "Consumer", 3)
		t.GrantHandler(fn, jsii.String("consume"))
		infra.NewQueueSource(t.Construct, jsii.String("Source"), &infra.QueueSourceProps{
			Function: fn, Queue: newQueue(awscdk.Stack_Of(t.Construct), awssqs.QueueProps{VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(18))}), Retention: awscdk.Duration_Days(jsii.Number(23)),
		})
	}
	for _, row := range []struct {
		name            string
		table           func(*infra.IdempotencyTable)
		scan            *infra.ScanProps
		every, segments any    // nil: not set
		info            string // parts, separated by "…"
		warning         string // empty: none
	}{
		// 1,000,000 × 72/730 × 450 B = 44.4 MB, or 5,418 units; 30.4 scans a month, at most 730.
		{"default", nil, nil, nil, nil, "reads 42 MB (outcomes of 3 days) every 1 day, which takes 11s: about $0.02 a month, and $0.49 if each finds one…lists of the reconciler cost $0.18", ""},
		{"hourly, 100 million", nil, &infra.ScanProps{Every: awscdk.Duration_Hours(jsii.Number(1)), RequestsPerMonth: jsii.Number(100e6)},
			"1h0m0s", nil, "4.1 GB…every 1h0m0s, which takes 18m4s: about $49.44 a month;", ""},
		{"ten billion", nil, &infra.ScanProps{RequestsPerMonth: jsii.Number(10e9), Segments: jsii.Number(11)},
			nil, "11", "413.4 GB…takes 2h44m11s: about $205.99 a month, and $4943.85 if each finds one", ""},
		{"22 days", nil, &infra.ScanProps{Every: awscdk.Duration_Days(jsii.Number(2)), Retention: awscdk.Duration_Days(jsii.Number(22)), RecordBytes: jsii.Number(1000)},
			"48h0m0s", nil, "752 MB (outcomes of 24 days) every 2 days", ""},
		// 22 days and the visibility time-out of two deliveries.
		{"a queue", withQueue, nil, nil, nil, "353 MB (outcomes of 25 days) every 1 day…about $0.17 a month, and $4.12 if each finds one", ""},
		{"large results", nil, &infra.ScanProps{RecordBytes: jsii.Number(5000)}, nil, nil, "", "each scan reads them: call KeepLargeResultsIn"},
		{"large results apart", largeResults, &infra.ScanProps{RecordBytes: jsii.Number(5000)}, nil, nil, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := scanning(60, row.table, row.scan)
			wantRefusals(t, stack)
			if row.warning == "" {
				wantWarnings(t, stack)
			} else {
				wantWarnings(t, stack, row.warning)
			}
			variables := variablesOf(t, stack)
			if variables["ONCE_SCAN_EVERY"] != row.every || variables["ONCE_SCAN_SEGMENTS"] != row.segments {
				t.Errorf("the variables are %v", variables)
			}
			infos := *assertions.Annotations_FromStack(stack).FindInfo(jsii.String("*"), assertions.Match_AnyValue())
			if len(infos) != 1 {
				t.Fatalf("%d prices are printed", len(infos))
			}
			said, rest := infos[0].Entry.Data.(string), "" //lint:ignore SA1019 there is no other way to it in Go yet
			rest = said
			for part := range strings.SplitSeq(row.info, "…") {
				_, after, found := strings.Cut(rest, part)
				if rest = after; !found {
					t.Errorf("synthesis prints %q, want %q", said, row.info)
				}
			}
		})
	}
}

func TestScansThatAreRefused(t *testing.T) {
	for _, row := range []struct {
		name    string
		timeout float64
		scan    *infra.ScanProps
		want    string
	}{
		{"too many records", 60, &infra.ScanProps{RequestsPerMonth: jsii.Number(100e9)}, "a scan of 4133.5 GB takes 12 days and 13h0m0s, which is longer than Scan.Every (1 day): set Scan.Segments to 13 or more, or Scan.Every to 12 days and 13h0m0s or more"},
		{"too often", 3, &infra.ScanProps{Every: awscdk.Duration_Hours(jsii.Number(1)), RequestsPerMonth: jsii.Number(100e6)}, "a scan of 4.1 GB takes 6h1m0s, which is longer than Scan.Every (1h0m0s): set Scan.Segments to 7 or more, or Scan.Every to 6h2m0s or more, or raise the function's time-out of 3s, for half of which a run scans"},
		{"half a segment", 60, &infra.ScanProps{Segments: jsii.Number(1.5)}, "Scan.Segments is 1.5"},
		{"no segment", 60, &infra.ScanProps{Segments: jsii.Number(0)}, "Scan.Segments is 0"},
		{"too many segments", 60, &infra.ScanProps{Segments: jsii.Number(1001)}, "Scan.Segments is 1001"},
		{"more often than the runs", 60, &infra.ScanProps{Every: awscdk.Duration_Seconds(jsii.Number(59))}, "Scan.Every is 59s, which is shorter than the interval between two runs (1m0s)"},
		{"a parameter", 60, &infra.ScanProps{Every: awscdk.Duration_Seconds(awscdk.Token_AsNumber("unknown"))}, "known only at the deployment"},
		{"many other items", 60, &infra.ScanProps{OtherBytes: jsii.Number(400 << 30)}, "a scan of 400.0 GB takes 1 day and 5h8m0s, which is longer than Scan.Every (1 day): set Scan.Segments to 2 or more"},
		{"off, with settings", 60, &infra.ScanProps{Every: awscdk.Duration_Minutes(jsii.Number(0)), Segments: jsii.Number(2)}, "Scan.Every is zero, so there are no scans, and another property of Scan is set"},
	} {
		t.Run(row.name, func(t *testing.T) { wantRefusals(t, scanning(row.timeout, nil, row.scan), row.want) })
	}
}

// Without scans a reconciler may not read the whole table, and pays for none.
func TestScan_Off(t *testing.T) {
	stack := scanning(60, nil, &infra.ScanProps{Every: awscdk.Duration_Minutes(jsii.Number(0))})
	wantNoMessages(t, stack)
	variables := variablesOf(t, stack)
	if variables["ONCE_SCAN_EVERY"] != "off" {
		t.Errorf("the variables are %v", variables)
	}
	if policy := asJSON(t, resources(t, stack, "AWS::IAM::Policy")[0]); strings.Contains(policy, "dynamodb:Scan") || strings.Contains(policy, "#scan") {
		t.Errorf("the policy is %s", policy)
	}
}

// An operator removes large results wherever they were stored.
func TestOperatorOfLargeResults(t *testing.T) {
	stack := newStack()
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	table.KeepLargeResultsIn(nil)
	table.GrantOperator(newRole(stack, "Role"))
	policy := policyOf(t, stack)
	chunk := string(aKey("charge").RecordID()) + "#" + strings.Repeat("0", 32) + "#0"
	for _, of := range []awsdynamodb.ITable{table.Table, table.Chunks} {
		arn := symbolic(stack.Resolve(of.TableArn()))
		wantAllowed(t, policy, request{"dynamodb:BatchWriteItem", arn, map[string][]string{"dynamodb:LeadingKeys": {chunk}}}, true)
		wantAllowed(t, policy, request{"dynamodb:BatchWriteItem", arn, map[string][]string{"dynamodb:LeadingKeys": {"settings"}}}, false)
	}
}

// A customer managed key of the table of records is the key of its large results too.
func TestKeyOfLargeResults(t *testing.T) {
	stack := newStackIn("eu-central-1")
	key := newKey(stack, "Key")
	infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{Encryption: with(key)}).KeepLargeResultsIn(nil)
	tables := resources(t, stack, "AWS::DynamoDB::GlobalTable")
	if len(tables) != 2 {
		t.Fatalf("%d tables", len(tables))
	}
	want := asJSON(t, map[string]any{"KMSMasterKeyId": stack.Resolve(key.KeyArn())})
	for _, table := range tables {
		if got := asJSON(t, table.Properties["Replicas"].([]any)[0].(map[string]any)["SSESpecification"]); got != want {
			t.Errorf("%s is encrypted with %s, want %s", table.id, got, want)
		}
	}
	wantRefusals(t, stack)
}

// Large results have a separate table, which a handler of one operation may use.
// TestTerraformIsTheCDK compares its properties.
func TestLargeResults(t *testing.T) {
	stack := newStack()
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	table.KeepLargeResultsIn(nil)
	table.GrantHandler(newFunction(stack, "Function", 3), jsii.String("charge"))
	for _, table := range resources(t, stack, "AWS::DynamoDB::GlobalTable") {
		if table.DeletionPolicy != "Retain" {
			t.Errorf("the deletion policy of %s is %q", table.id, table.DeletionPolicy)
		}
	}
	wantProperties(t, resources(t, stack, "AWS::Lambda::Function")[0], `{"Environment": {"Variables": {
		"ONCE_TABLE": {"Ref": "RecordsTableC9B7A30B"}, "ONCE_CHUNK_TABLE": {"Ref": "RecordsChunksF4CA8715"}}}}`)
	chunk := map[string][]string{"dynamodb:LeadingKeys": {string(aKey("charge").RecordID()) + "#" + strings.Repeat("0", 32) + "#0"}}
	wantAllowed(t, policyOf(t, stack), request{"dynamodb:BatchWriteItem", "<RecordsChunksF4CA8715.Arn>", chunk}, true)
	wantAllowed(t, policyOf(t, stack), request{"dynamodb:BatchWriteItem", "<RecordsTableC9B7A30B.Arn>", chunk}, false)
	wantRefusals(t, stack)
	table.KeepLargeResultsIn(table.Chunks)
	wantRefusals(t, stack, "KeepLargeResultsIn is called after a grant")
}
