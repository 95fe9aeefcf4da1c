// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskinesis"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
)

var update = flag.Bool("update", false, "write what is generated")

// protect is the code that docs/deploy-cdk.md adds to a stack with existing
// functions.
func protect(stack awscdk.Stack, charge, reconcile awslambda.IFunction, pager, tickets awssns.ITopic) *infra.IdempotencyTable {
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	records.GrantHandler(charge, jsii.String("POST /charges")) // and sets ONCE_TABLE
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: reconcile, Table: records,
	})
	infra.NewIdempotencyAlarms(stack, jsii.String("OnceAlarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Table: records,
		Functions:  &[]awslambda.IFunction{charge}, // sets ONCE_METRICS_NAMESPACE, for emf.New
		Reconciler: reconciler, Page: pager, Ticket: tickets,
	})
	return records
}

// sized is the code of docs/deploy-cdk.md for a table with other settings.
func sized(stack awscdk.Stack) *infra.IdempotencyTable {
	return infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		TableName:      jsii.String("charge-records"),
		WarmThroughput: &awsdynamodb.WarmThroughput{WriteUnitsPerSecond: jsii.Number(20000)},
		ContributorInsightsSpecification: &awsdynamodb.ContributorInsightsSpecification{
			Enabled: jsii.Bool(true),
		},
	})
}

// feed is the code that docs/deploy-cdk.md adds for a queue.
func feed(stack awscdk.Stack, records *infra.IdempotencyTable, orders awslambda.IFunction, queue awssqs.IQueue) {
	records.GrantHandler(orders, jsii.String("take-order"))
	infra.NewQueueSource(stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: orders, Queue: queue,
		Retention: awscdk.Duration_Days(jsii.Number(23)), // the default of lambdabatch
		Source:    &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(10)},
	})
}

// stream is the code that docs/deploy-cdk.md adds for a stream.
func stream(stack awscdk.Stack, ship awslambda.IFunction, shipments awskinesis.IStream, failed awssqs.IQueue) {
	infra.NewStreamSource(stack, jsii.String("ShipmentSource"), &infra.StreamSourceProps{
		Function: ship, Stream: shipments,
		Retention: awscdk.Duration_Hours(jsii.Number(24)), // the default of lambdabatch
		Kinesis: &awslambdaeventsources.KinesisEventSourceProps{
			StartingPosition: awslambda.StartingPosition_TRIM_HORIZON,
			MaxRecordAge:     awscdk.Duration_Hours(jsii.Number(6)),
			OnFailure:        awslambdaeventsources.NewSqsDlq(failed),
		},
	})
}

// topic is the code that docs/deploy-cdk.md adds for a topic of Kafka.
func topic(stack awscdk.Stack, bill awslambda.IFunction, clusterARN *string, failed awssqs.IQueue) {
	infra.NewKafkaSource(stack, jsii.String("InvoiceSource"), &infra.KafkaSourceProps{
		Function:       bill,
		TopicRetention: awscdk.Duration_Days(jsii.Number(7)), // retention.ms of the topic
		Retention:      awscdk.Duration_Days(jsii.Number(7)),
		Managed: &awslambdaeventsources.ManagedKafkaEventSourceProps{
			ClusterArn: clusterARN, Topic: jsii.String("invoices"),
			StartingPosition:        awslambda.StartingPosition_TRIM_HORIZON,
			MaxRecordAge:            awscdk.Duration_Hours(jsii.Number(6)),
			OnFailure:               awslambdaeventsources.NewSqsDlq(failed),
			ProvisionedPollerConfig: &awslambdaeventsources.ProvisionedPollerConfig{MinimumPollers: jsii.Number(1), MaximumPollers: jsii.Number(10)},
		},
	})
}

// others is the code of docs/deploy-company.md.
func others(stack awscdk.Stack, records *infra.IdempotencyTable, fn awslambda.Function, task awsecs.FargateTaskDefinition) awslambda.IFunction {
	live := fn.AddAlias(jsii.String("live"), nil)
	records.GrantHandler(live, jsii.String("POST /charges"))

	imported := awslambda.Function_FromFunctionAttributes(stack, jsii.String("Refund"), &awslambda.FunctionAttributes{
		FunctionArn:     jsii.String("arn:aws:lambda:eu-central-1:123456789012:function:refund"),
		Role:            awsiam.Role_FromRoleName(stack, jsii.String("RefundRole"), jsii.String("refund"), nil),
		SameEnvironment: jsii.Bool(true),
	})
	records.GrantHandler(imported, jsii.String("POST /refunds"))

	records.GrantHandler(task.TaskRole(), jsii.String("settle"))
	task.DefaultContainer().AddEnvironment(jsii.String("ONCE_TABLE"), records.Table.TableName())
	return imported
}

// people is the code of docs/deploy-company.md for people.
func people(stack awscdk.Stack, records *infra.IdempotencyTable) {
	support := awsiam.Role_FromRoleName(stack, jsii.String("Support"), jsii.String("support"), nil)
	records.GrantViewer(support)
	oncall := awsiam.Role_FromRoleName(stack, jsii.String("OnCall"), jsii.String("on-call"), nil)
	records.GrantOperator(oncall)
}

// existing is the code of docs/deploy-company.md.
func existing(stack awscdk.Stack, charge awslambda.IFunction) *infra.IdempotencyTable {
	table := awsdynamodb.TableV2_FromTableName(stack, jsii.String("Table"), jsii.String("charge-records"))
	records := infra.IdempotencyTableFrom(stack, jsii.String("Records"), table, nil)
	records.GrantHandler(charge, jsii.String("POST /charges"))
	return records
}

// existingWithKey is the code of docs/deploy-company.md for a table with a
// customer managed key.
func existingWithKey(stack awscdk.Stack) *infra.IdempotencyTable {
	table := awsdynamodb.TableV2_FromTableAttributes(stack, jsii.String("Table"), &awsdynamodb.TableAttributesV2{
		TableArn:      jsii.String("arn:aws:dynamodb:eu-central-1:123456789012:table/charge-records"),
		EncryptionKey: awskms.Key_FromLookup(stack, jsii.String("Key"), &awskms.KeyLookupOptions{AliasName: jsii.String("alias/charge-records")}),
	})
	return infra.IdempotencyTableFrom(stack, jsii.String("Records"), table, nil)
}

// besideOthers is the code of docs/deploy-company.md for a table with other
// items.
func besideOthers(stack awscdk.Stack, charge awslambda.IFunction) *infra.IdempotencyTable {
	shop := awsdynamodb.TableV2_FromTableName(stack, jsii.String("Shop"), jsii.String("shop"))
	records := infra.IdempotencyTableFrom(stack, jsii.String("Records"), shop, &infra.TableLayout{
		PartitionKey:        jsii.String("PK"),
		SortKey:             jsii.String("SK"),
		Prefix:              jsii.String("ONCE#"),
		TimeToLiveAttribute: jsii.String("expires_at"),
	})
	records.GrantHandler(charge, jsii.String("POST /charges"))
	return records
}

// withIndex is the code of docs/deploy-company.md that adds the index to a
// table of the app.
func withIndex(shop awsdynamodb.TableV2) {
	shop.AddGlobalSecondaryIndex(&awsdynamodb.GlobalSecondaryIndexPropsV2{
		IndexName:        jsii.String("recovery"),
		PartitionKey:     &awsdynamodb.Attribute{Name: jsii.String("rk"), Type: awsdynamodb.AttributeType_STRING},
		SortKey:          &awsdynamodb.Attribute{Name: jsii.String("rat"), Type: awsdynamodb.AttributeType_NUMBER},
		ProjectionType:   awsdynamodb.ProjectionType_INCLUDE,
		NonKeyAttributes: jsii.Strings("st", "dt", "lease"),
	})
}

// inVPC is the code of docs/deploy-company.md.
func inVPC(vpc awsec2.Vpc) {
	vpc.AddGatewayEndpoint(jsii.String("DynamoDB"), &awsec2.GatewayVpcEndpointOptions{
		Service: awsec2.GatewayVpcEndpointAwsService_DYNAMODB(),
	})
	vpc.AddInterfaceEndpoint(jsii.String("SQS"), &awsec2.InterfaceVpcEndpointOptions{
		Service: awsec2.InterfaceVpcEndpointAwsService_SQS(),
	})
}

// encrypted is the code of docs/encrypt.md.
func encrypted(stack awscdk.Stack) *infra.IdempotencyTable {
	key := awskms.NewKey(stack, jsii.String("RecordsKey"), &awskms.KeyProps{EnableKeyRotation: jsii.Bool(true)})
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		Encryption: awsdynamodb.TableEncryptionV2_CustomerManagedKey(key, nil),
	})
	return records
}

// encryptedReplica is the code of docs/encrypt.md for a replica.
func encryptedReplica(stack awscdk.Stack, key awskms.IKey, keyInIreland *string) *infra.IdempotencyTable {
	return infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		Replicas:   &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-west-1")}},
		Encryption: awsdynamodb.TableEncryptionV2_CustomerManagedKey(key, &map[string]*string{"eu-west-1": keyInIreland}),
	})
}

// shared is the code of docs/deploy-company.md in the account of the table.
func shared(data awscdk.Stack) {
	records := infra.NewIdempotencyTable(data, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		TableName: jsii.String("charge-records"),
	})
	charge := awsiam.Role_FromRoleArn(data, jsii.String("Charge"), jsii.String("arn:aws:iam::210987654321:role/charge"), nil)
	records.GrantHandler(charge, jsii.String("POST /charges"))
}

// sharing is the code of docs/deploy-company.md in the account of the function.
func sharing(service awscdk.Stack, charge awslambda.Function) {
	table := awsdynamodb.TableV2_FromTableArn(service, jsii.String("Table"),
		jsii.String("arn:aws:dynamodb:eu-central-1:123456789012:table/charge-records"))
	records := infra.IdempotencyTableFrom(service, jsii.String("Records"), table, nil)
	records.GrantHandler(charge, jsii.String("POST /charges")) // ONCE_TABLE is the ARN
}

// agreed is the code of docs/regions.md for the stack that creates the table.
func agreed(stack awscdk.Stack) *infra.IdempotencyTable {
	return infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		TableName:              jsii.String("charge-records"),
		MultiRegionConsistency: awsdynamodb.MultiRegionConsistency_STRONG,
		Replicas:               &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-west-1")}},
		WitnessRegion:          jsii.String("eu-west-3"), // or a second replica
	})
}

// agreedThere is the code of docs/regions.md for a stack in another region.
func agreedThere(stack awscdk.Stack, charge, reconcile awslambda.IFunction, pager, tickets awssns.ITopic) *infra.IdempotencyTable {
	replica := awsdynamodb.TableV2_FromTableName(stack, jsii.String("Table"), jsii.String("charge-records"))
	records := infra.IdempotencyTableFrom(stack, jsii.String("Records"), replica, &infra.TableLayout{
		Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
	})
	records.GrantHandler(charge, jsii.String("POST /charges")) // and sets ONCE_CONSISTENCY
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{Function: reconcile, Table: records})
	infra.NewIdempotencyAlarms(stack, jsii.String("OnceAlarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Table: records,
		Functions:  &[]awslambda.IFunction{charge},
		Reconciler: reconciler, Page: pager, Ticket: tickets,
	})
	return records
}

// The code that the guides show is accepted.
func TestGuide(t *testing.T) {
	queue := func(s awscdk.Stack, id string) awssqs.Queue { return awssqs.NewQueue(s, jsii.String(id), nil) }
	for _, row := range []struct {
		name    string
		add     func(awscdk.Stack)
		roles   int // with permissions
		warning []string
	}{
		{"CDK app", func(s awscdk.Stack) {
			topic := awssns.NewTopic(s, jsii.String("Topic"), nil)
			records := protect(s, newFunction(s, "Charge", 10), newFunction(s, "Reconcile", 60), topic, topic)
			feed(s, records, newFunction(s, "OrderHandler", 5), newQueue(s, awssqs.QueueProps{}))
		}, 3, nil},
		{"settings", func(s awscdk.Stack) { sized(s) }, 0, nil},
		{"stream", func(s awscdk.Stack) {
			stream(s, newFunction(s, "Ship", 5), awskinesis.NewStream(s, jsii.String("Shipments"), nil), queue(s, "Failed"))
		}, 1, nil},
		{"topic", func(s awscdk.Stack) {
			topic(s, newFunction(s, "Bill", 5), jsii.String("arn:aws:kafka:eu-central-1:123456789012:cluster/invoices/1"), queue(s, "Failed"))
		}, 1, nil},
		{"functions", func(s awscdk.Stack) {
			task := awsecs.NewFargateTaskDefinition(s, jsii.String("Task"), nil)
			task.AddContainer(jsii.String("Main"), &awsecs.ContainerDefinitionOptions{Image: awsecs.ContainerImage_FromRegistry(jsii.String("settle"), nil)})
			others(s, infra.NewIdempotencyTable(s, jsii.String("Records"), nil), newFunction(s, "Charge", 10), task)
		}, 3, nil},
		{"people", func(s awscdk.Stack) { people(s, infra.NewIdempotencyTable(s, jsii.String("Records"), nil)) }, 2, nil},
		{"existing table", func(s awscdk.Stack) { existing(s, newFunction(s, "Charge", 10)) }, 1, nil},
		{"existing table with a key", func(s awscdk.Stack) {
			existingWithKey(s).GrantHandler(newFunction(s, "Charge", 10), jsii.String("POST /charges"))
		}, 1, nil},
		{"table of other items", func(s awscdk.Stack) { besideOthers(s, newFunction(s, "Charge", 10)) }, 1, nil},
		{"its index", func(s awscdk.Stack) {
			withIndex(newTable(s, "Shop", awsdynamodb.TablePropsV2{}))
			infra.NewIdempotencyTable(s, jsii.String("Records"), nil)
			tables := resources(t, s, "AWS::DynamoDB::GlobalTable")
			if got, want := asJSON(t, tables[0].Properties["GlobalSecondaryIndexes"]), asJSON(t, tables[1].Properties["GlobalSecondaryIndexes"]); len(tables) != 2 || got != want {
				t.Errorf("the index is %s, want %s", got, want)
			}
		}, 0, nil},
		{"VPC", func(s awscdk.Stack) {
			inVPC(awsec2.NewVpc(s, jsii.String("VPC"), &awsec2.VpcProps{MaxAzs: jsii.Number(2)}))
		}, 0, nil},
		{"KMS", func(s awscdk.Stack) {
			encrypted(s).GrantHandler(newFunction(s, "Charge", 10), jsii.String("POST /charges"))
		}, 1, nil},
		{"KMS with a replica", func(s awscdk.Stack) {
			encryptedReplica(s, awskms.NewKey(s, jsii.String("Key"), nil), jsii.String("arn:aws:kms:eu-west-1:123456789012:key/1"))
		}, 0, []string{"send the requests of a key to one region"}},
		{"several regions", func(s awscdk.Stack) {
			agreed(s).GrantHandler(newFunction(s, "Charge", 10), jsii.String("POST /charges"))
		}, 1, []string{"no Reconciler of this construct deletes its expired items"}},
		{"another region", func(s awscdk.Stack) {
			topic := awssns.NewTopic(s, jsii.String("Topic"), nil)
			agreedThere(s, newFunction(s, "Charge", 10), newFunction(s, "Reconcile", 60), topic, topic)
		}, 2, nil},
		{"the account of the table", shared, 0, nil},
		{"the account of the function", func(s awscdk.Stack) { sharing(s, newFunction(s, "Charge", 10)) }, 1,
			[]string{"the policy of the imported table Test/Table cannot be changed here"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			if row.name == "the account of the function" {
				stack = newStackOf(&awscdk.StackProps{Env: &awscdk.Environment{Region: jsii.String("eu-central-1"), Account: jsii.String("210987654321")}})
			}
			row.add(stack)
			wantRefusals(t, stack)
			wantWarnings(t, stack, row.warning...)
			if got := len(resources(t, stack, "AWS::IAM::Policy")); got != row.roles {
				t.Errorf("%d roles have permissions, want %d", got, row.roles)
			}
		})
	}
}

// What the constructs create in the app of a company is the same with each version of the
// CDK: the file has a digest of each resource, and of the variables of each function.
// Functions, network, roles and topics are the company's, in which versions differ.
func TestCompanyTemplate(t *testing.T) {
	stack := newStackIn("eu-central-1")
	awsiam.PermissionsBoundary_Of(stack).Apply(awsiam.ManagedPolicy_FromManagedPolicyName(stack, jsii.String("Boundary"), jsii.String("boundary")))
	vpc := awsec2.NewVpc(stack, jsii.String("VPC"), &awsec2.VpcProps{MaxAzs: jsii.Number(2)})
	inVPC(vpc)
	fn := func(id string, timeout float64) awslambda.Function {
		return newFunctionOf(stack, id, awslambda.FunctionProps{Timeout: awscdk.Duration_Seconds(jsii.Number(timeout)), Vpc: vpc})
	}
	topic := awssns.Topic_FromTopicArn(stack, jsii.String("Topic"), jsii.String("arn:aws:sns:eu-central-1:123456789012:pager"))
	charge, orders := fn("Charge", 10), fn("OrderHandler", 5)
	feed(stack, protect(stack, charge, fn("Reconcile", 60), topic, topic), orders, newQueue(stack, awssqs.QueueProps{}))

	second := infra.NewIdempotencyTable(stack, jsii.String("OrderRecords"), &awsdynamodb.TablePropsV2{
		Encryption: with(newKey(stack, "Key")),
	}).Named(jsii.String("orders"))
	second.GrantHandler(orders.AddAlias(jsii.String("live"), nil), jsii.String("ship-order"))
	infra.NewReconciler(stack, jsii.String("OrderReconciler"), &infra.ReconcilerProps{Function: fn("ReconcileOrders", 60), Table: second})

	wantRefusals(t, stack)
	var all map[string]struct {
		Type       string
		Properties map[string]any
	}
	decode(t, asJSON(t, (*assertions.Template_FromStack(stack, nil).ToJSON())["Resources"]), &all)
	digests := map[string]string{}
	for id, r := range all {
		if r.Type == "AWS::Lambda::Function" {
			r.Properties = map[string]any{"Environment": r.Properties["Environment"]}
		} else if regexp.MustCompile("^(AWS::EC2::.*|Custom::.*|AWS::IAM::Role|AWS::Lambda::(Alias|Version))$").MatchString(r.Type) {
			continue
		}
		digests[id] = fmt.Sprintf("%s %x", r.Type, sha256.Sum256([]byte(asJSON(t, r))))[:len(r.Type)+13]
	}
	wantFile(t, "testdata/company.json", digests)
}

// The permissions in the report equal those that the constructs grant.
func TestPermissionsInTheGuide(t *testing.T) {
	var table strings.Builder
	table.WriteString("| who | on | may | with keys of |\n| --- | --- | --- | --- |\n")
	for _, grantee := range grantees {
		stack := newStack()
		grantee.grant(infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), newFunction(stack, "Function", 3))
		who := grantee.name
		for _, s := range statements(t, resources(t, stack, "AWS::IAM::Policy")[0].Properties["PolicyDocument"]) {
			on := "the table"
			if strings.Contains(s.Resource[0], "/index/"+tabledef.IndexName) {
				on = "its index, `…/index/" + tabledef.IndexName + "`"
			}
			fmt.Fprintf(&table, "| %s | %s | `%s` | %s |\n", who, on, strings.Join(s.Action, "`, `"), keysIn(s))
			who = ""
		}
	}
	kit.Part(t, "../docs/reports/limits.md", "permissions", table.String(), *update)
}

// keysIn names the keys that a statement is limited to.
func keysIn(s statement) string {
	var kinds []string
	for _, pattern := range s.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"] {
		kind := "records"
		switch {
		case strings.HasSuffix(pattern, "#*"):
			kind = "chunks"
		case pattern == tabledef.ScanKey:
			kind = "the scan's position"
		case pattern == tabledef.OpenKey:
			kind = "`#open`"
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, " and ")
}

// The table of alarms in the report equals the alarms that the construct creates,
// and each has a section of the guide that its description links to.
func TestAlarmsInTheGuide(t *testing.T) {
	stack, alarms := watched()
	text, err := os.ReadFile("../docs/alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]resource{}
	for _, r := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		made[r.id] = r
	}
	var table strings.Builder
	table.WriteString("| alarm | notifies | rings if |\n| --- | --- | --- |\n")
	rows := map[string]bool{}
	for _, list := range []struct {
		topic  string
		alarms []awscloudwatch.Alarm
	}{{"`Page`", alarms.Page}, {"`Ticket`", alarms.Ticket}, {"`Look`", alarms.Look}} {
		for _, alarm := range list.alarms {
			name, _, _ := strings.Cut(strings.TrimRight(*alarm.Node().Id(), "0123456789"), "-")
			if rows[name] {
				continue // the alarm of another queue or operation
			}
			rows[name] = true
			r := made[*stack.GetLogicalId(alarm.Node().DefaultChild().(awscdk.CfnElement))]
			anchor := "#" + strings.ToLower(name)
			if link := "https://github.com/once-lambda/once/blob/main/docs/alarms.md" + anchor; !strings.HasSuffix(r.Properties["AlarmDescription"].(string), " "+link) {
				t.Errorf("%s does not link to its procedure: %s", name, r.Properties["AlarmDescription"])
			}
			if !bytes.Contains(text, []byte("\n## "+name+"\n")) {
				t.Errorf("docs/alarms.md has no section %s", name)
			}
			fmt.Fprintf(&table, "| [%s](../alarms.md%s) | %s | %s |\n", name, anchor, list.topic, rings(t, r))
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^## ([A-Z]\w+)$`).FindAllSubmatch(text, -1) {
		if !rows[string(heading[1])] {
			t.Errorf("docs/alarms.md has a section for %s, and there is no such alarm", heading[1])
		}
	}
	kit.Part(t, "../docs/reports/alarms.md", "alarms", table.String(), *update)
}

// rings says when an alarm rings, from its properties.
func rings(t *testing.T, r resource) string {
	t.Helper()
	var a struct {
		MetricName, ComparisonOperator, TreatMissingData string
		Period, Threshold                                float64
		EvaluationPeriods, DatapointsToAlarm             int
		Metrics                                          []struct {
			Expression string
			MetricStat struct {
				Period float64
				Metric struct{ MetricName string }
			}
		}
	}
	decode(t, asJSON(t, r.Properties), &a)
	on, per := []string{a.MetricName}, ""
	if len(a.Metrics) > 0 {
		on = nil
	}
	least := ""
	for _, m := range a.Metrics {
		if n := regexp.MustCompile(`^IF\(FILL\(\w+, 0\) > ([1-9]\d*),`).FindStringSubmatch(m.Expression); n != nil {
			least = " and more than " + n[1] + " errors,"
		}
		if m.Expression != "" {
			continue
		}
		a.Period = m.MetricStat.Period
		switch name := m.MetricStat.Metric.MetricName; name {
		case "once.request_ended":
			per = " per request"
		case "ConsumedWriteCapacityUnits":
			per = " per write unit"
		case "Invocations":
			per = " per invocation"
		default:
			on = append(on, name)
		}
	}
	slices.Sort(on)
	said := "`" + strings.Join(on, "` and `") + "`" + per
	said += map[string]string{"GreaterThanThreshold": " > ", "LessThanThreshold": " < "}[a.ComparisonOperator] + fmt.Sprint(a.Threshold)
	if per != "" {
		said += " %" + least
	}
	if a.TreatMissingData == "breaching" {
		said += " or missing"
	}
	unit := map[float64]string{60: "minute", 300: "period of 5 minutes", 600: "period of 10 minutes", 3600: "hour"}[a.Period]
	switch {
	case a.EvaluationPeriods == 1:
		return said + " in the last " + unit
	case a.DatapointsToAlarm == a.EvaluationPeriods:
		return fmt.Sprintf("%s in %d %ss in a row", said, a.EvaluationPeriods, unit)
	default:
		first, rest, _ := strings.Cut(unit, " ")
		return strings.TrimSpace(fmt.Sprintf("%s in %d of %d %ss %s", said, a.DatapointsToAlarm, a.EvaluationPeriods, first, rest))
	}
}

// G12: the tables for CloudFormation are those that the CDK synthesises, with the index,
// protected and retained.
func TestTableTemplate(t *testing.T) {
	everywhere := strong("eu-west-3", "eu-central-1")
	everywhere.TableName = nil
	for _, row := range []struct {
		file, description string
		env               *awscdk.Environment
		props             *awsdynamodb.TablePropsV2
	}{
		{"table.json", "The table of package dynamostore", nil, nil},
		{"strong.json", "The table of package dynamostore with strong consistency across regions, deployed in eu-west-1", &awscdk.Environment{Region: jsii.String("eu-west-1")}, everywhere},
	} {
		app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false)})
		stack := awscdk.NewStack(app, jsii.String("Test"), &awscdk.StackProps{
			Description: jsii.String(row.description), Env: row.env,
			Synthesizer: awscdk.NewDefaultStackSynthesizer(&awscdk.DefaultStackSynthesizerProps{GenerateBootstrapVersionRule: jsii.Bool(false)}),
		})
		table := infra.NewIdempotencyTable(stack, jsii.String("Records"), row.props)
		table.Table.Node().DefaultChild().(awsdynamodb.CfnGlobalTable).OverrideLogicalId(jsii.String("Records"))
		awscdk.NewCfnOutput(stack, jsii.String("TableName"), &awscdk.CfnOutputProps{Value: table.Table.TableName()})
		awscdk.NewCfnOutput(stack, jsii.String("TableArn"), &awscdk.CfnOutputProps{Value: table.Table.TableArn()})
		wantFile(t, row.file, assertions.Template_FromStack(stack, nil).ToJSON())
	}
}
