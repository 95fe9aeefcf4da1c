// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
)

// goodTable returns a fake with a table as infrastructure code would create it,
// written here independently of the package.
func goodTable() *fakeDynamoDB {
	fake := newFake()
	fake.table = &types.TableDescription{
		TableName:   aws.String(tableName),
		TableArn:    aws.String("arn:aws:dynamodb:eu-central-1:123456789012:table/once"),
		TableStatus: types.TableStatusActive,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("rat"), AttributeType: "N"},
			{AttributeName: aws.String("pk"), AttributeType: "S"},
			{AttributeName: aws.String("rk"), AttributeType: "S"},
		},
		KeySchema: []types.KeySchemaElement{hash("pk")},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndexDescription{
			{IndexName: aws.String("another-index"), KeySchema: []types.KeySchemaElement{hash("rat")}, IndexStatus: "CREATING"},
			{
				IndexName:   aws.String("recovery"),
				KeySchema:   []types.KeySchemaElement{hash("rk"), sorted("rat")},
				Projection:  &types.Projection{ProjectionType: "INCLUDE", NonKeyAttributes: []string{"lease", "dt", "st"}},
				IndexStatus: "ACTIVE",
			},
		},
	}
	fake.ttl = &types.TimeToLiveDescription{AttributeName: aws.String("ttl"), TimeToLiveStatus: "ENABLED"}
	return fake
}

func hash(name string) types.KeySchemaElement {
	return types.KeySchemaElement{AttributeName: aws.String(name), KeyType: "HASH"}
}

func sorted(name string) types.KeySchemaElement {
	return types.KeySchemaElement{AttributeName: aws.String(name), KeyType: "RANGE"}
}

func replica(region string) types.ReplicaDescription {
	return types.ReplicaDescription{RegionName: aws.String(region), ReplicaStatus: "ACTIVE"}
}

func global(f *fakeDynamoDB, consistency types.MultiRegionConsistency, regions ...string) {
	f.table.GlobalTableVersion = aws.String("2019.11.21")
	f.table.MultiRegionConsistency = consistency
	for _, region := range regions {
		f.table.Replicas = append(f.table.Replicas, replica(region))
	}
}

// FM49: one of the problems is replication to other regions. There is one message for
// each fact of a table, for both values of Options.Consistency.
func TestCheck(t *testing.T) {
	t.Parallel()
	const gb = 1 << 30
	hourly := func(o *dynamostore.Options) { o.ScanEvery = time.Hour }
	off := &types.TimeToLiveDescription{TimeToLiveStatus: "DISABLED"}
	witness := func(f *fakeDynamoDB, status types.WitnessStatus) {
		f.table.GlobalTableWitnesses = []types.GlobalTableWitnessDescription{{RegionName: aws.String("eu-west-2"), WitnessStatus: status}}
	}
	for _, tt := range []struct {
		name   string
		opts   func(*dynamostore.Options)
		change func(*fakeDynamoDB)
		want   []string // one string per problem, in order, with parts separated by "…"
	}{
		{"as designed", nil, func(*fakeDynamoDB) {}, nil},
		{"being updated", nil, func(f *fakeDynamoDB) { f.table.TableStatus = "UPDATING" }, nil},
		{"index being updated", nil, func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].IndexStatus = "UPDATING" }, nil},
		{"TTL being switched on", nil, func(f *fakeDynamoDB) { f.ttl.TimeToLiveStatus = "ENABLING" }, nil},
		{"provisioned throughput", nil, func(f *fakeDynamoDB) {
			f.table.BillingModeSummary = &types.BillingModeSummary{BillingMode: "PROVISIONED"}
		}, nil},
		{"global, one region only", nil, func(f *fakeDynamoDB) { global(f, "EVENTUAL", "eu-central-1") }, nil},
		{"no table", nil, func(f *fakeDynamoDB) { f.Client = dynamotest.New() }, []string{"does not exist…region…CreateTable"}},
		{"being created", nil, func(f *fakeDynamoDB) { f.table.TableStatus = "CREATING" }, []string{"CREATING…ACTIVE"}},
		{"its key is lost", nil, func(f *fakeDynamoDB) { f.table.TableStatus = "INACCESSIBLE_ENCRYPTION_CREDENTIALS" }, []string{"INACCESSIBLE_ENCRYPTION_CREDENTIALS"}},
		{"another key", nil, func(f *fakeDynamoDB) {
			f.table.KeySchema = []types.KeySchemaElement{hash("id")}
			f.table.AttributeDefinitions = append(f.table.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String("id"), AttributeType: "S"})
		}, []string{"key is id (HASH, S) and must be pk (HASH, S)…another table, or name its keys in Options.PartitionKey and SortKey (ONCE_PARTITION_KEY, ONCE_SORT_KEY)…$"}},
		{"a key of another type", nil, func(f *fakeDynamoDB) { f.table.AttributeDefinitions[1].AttributeType = "B" }, []string{"key is pk (HASH, B) and must be pk (HASH, S)…: create another table…$"}},
		{"a sort key", nil, func(f *fakeDynamoDB) {
			f.table.KeySchema = append(f.table.KeySchema, sorted("rat"))
		}, []string{"key is pk (HASH, S), rat (RANGE, N) and must be pk (HASH, S)…SortKey (ONCE_PARTITION_KEY, ONCE_SORT_KEY), with a Prefix…$"}},
		{"without the sort key", func(o *dynamostore.Options) { o.SortKey, o.Prefix = "sk", "ONCE#" }, func(*fakeDynamoDB) {}, []string{"key is pk (HASH, S) and must be pk (HASH, S), sk (RANGE, S)…or remove Options.SortKey (ONCE_SORT_KEY)…$"}},
		{"TTL off", nil, func(f *fakeDynamoDB) { f.ttl = &types.TimeToLiveDescription{TimeToLiveStatus: "DISABLED"} }, []string{`time to live is off…switch it on for attribute "ttl"`}},
		{"TTL never switched on", nil, func(f *fakeDynamoDB) { f.ttl = nil }, []string{"time to live is off"}},
		{"TTL being switched off", nil, func(f *fakeDynamoDB) { f.ttl.TimeToLiveStatus = "DISABLING" }, []string{"time to live is off"}},
		{"TTL on another attribute", nil, func(f *fakeDynamoDB) { f.ttl.AttributeName = aws.String("expires") }, []string{`time to live is on attribute "expires" and must be on "ttl"`}},
		{"no index", nil, func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes = f.table.GlobalSecondaryIndexes[:1] }, []string{`no index "recovery"…rk (HASH, S), rat (RANGE, N)…INCLUDE (st, dt, lease)`}},
		{"no index, and none wanted", noIndex, func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes = f.table.GlobalSecondaryIndexes[:1]
			f.refuse = refusing("Query", validation("no index"))
		}, nil},
		{"index with other keys", nil, func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[1].KeySchema = []types.KeySchemaElement{hash("rk")}
		}, []string{`index "recovery" is rk (HASH, S) and must be rk (HASH, S), rat (RANGE, N)`}},
		{"index keys of another type", nil, func(f *fakeDynamoDB) { f.table.AttributeDefinitions[0].AttributeType = "S" }, []string{"rk (HASH, S), rat (RANGE, S) and must be rk (HASH, S), rat (RANGE, N)"}},
		{"index with projection ALL", nil, func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].Projection.ProjectionType = "ALL" }, []string{"must project its keys and st, dt, lease…with more, writes cost more…INCLUDE (st, dt, lease)"}},
		{"index with projection KEYS_ONLY", nil, func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[1].Projection = &types.Projection{ProjectionType: "KEYS_ONLY"}
		}, []string{"must project its keys and st, dt, lease…with less, reconciliation cannot list records"}},
		{"index with another attribute", nil, func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[1].Projection.NonKeyAttributes = []string{"st", "dt", "lease", "res"}
		}, []string{"must project its keys and st, dt, lease"}},
		{"index without a projection", nil, func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].Projection = nil }, []string{"must project its keys"}},
		{"index not ready", nil, func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].IndexStatus = "CREATING" }, []string{`index "recovery" is CREATING…ACTIVE`}},
		{"MREC", nil, func(f *fakeDynamoDB) { global(f, "EVENTUAL", "eu-central-1", "us-east-1", "us-west-2") }, []string{"MREC…us-east-1, us-west-2:…the handler of a key can run in two regions…use a table in one region…strong consistency"}},
		{"MREC by default", nil, func(f *fakeDynamoDB) { global(f, "", "us-east-1") }, []string{"MREC"}},
		{"MREC, own region unknown", nil, func(f *fakeDynamoDB) { global(f, "", "us-east-1"); f.table.TableArn = nil }, []string{"MREC"}},
		{"MREC of 2017", nil, func(f *fakeDynamoDB) { f.table.GlobalTableVersion = aws.String("2017.11.29") }, []string{"MREC…other regions"}},
		{"MREC of 2017, with its regions", nil, func(f *fakeDynamoDB) {
			global(f, "", "us-east-1")
			f.table.GlobalTableVersion = aws.String("2017.11.29")
		}, []string{"MREC…us-east-1"}},
		{"MRSC", nil, func(f *fakeDynamoDB) {
			global(f, "STRONG", "us-east-1", "us-west-2")
			f.ttl = &types.TimeToLiveDescription{TimeToLiveStatus: "DISABLED"}
		}, []string{"MRSC…Options.Consistency is not set…transactions fail…ONCE_CONSISTENCY=strong"}},
		{"the claim denied", nil, func(f *fakeDynamoDB) { f.refuse = refusing("PutItem", errDenied) }, []string{"a claim was denied (a viewer may not write, a function must)…allow dynamodb:PutItem"}},
		{"the claim throttled", nil, func(f *fakeDynamoDB) {
			f.refuse = refusing("PutItem", &types.ProvisionedThroughputExceededException{})
		}, []string{"a claim failed: …ProvisionedThroughputExceeded"}},
		{"conditions ignored", nil, func(f *fakeDynamoDB) {
			f.Client = dynamotest.Intercept(f.Client, func(ctx context.Context, c *dynamotest.Call) {
				if in, ok := c.In.(*dynamodb.PutItemInput); ok {
					c.In = &dynamodb.PutItemInput{TableName: in.TableName, Item: in.Item}
				}
				c.Do(ctx)
			})
		}, []string{"a claim failed: it was written although its condition is false"}},
		{"the list denied", nil, func(f *fakeDynamoDB) { f.refuse = refusing("Query", errDenied) }, []string{`a query of the index "recovery" failed: …allow dynamodb:Query`}},
		{"all denied", nil, func(f *fakeDynamoDB) {
			f.refuse = func(string, int) error { return &smithy.GenericAPIError{Code: "AccessDeniedException"} }
		}, []string{"dynamodb:DescribeTable", "dynamodb:PutItem", "dynamodb:Query"}},
		{"DescribeTable denied", nil, func(f *fakeDynamoDB) { f.refuse = refusing("DescribeTable", errDenied) }, []string{"allow dynamodb:DescribeTable"}},
		{"DescribeTimeToLive denied, and no index", nil, func(f *fakeDynamoDB) {
			f.refuse = refusing("DescribeTimeToLive", errDenied)
			f.table.GlobalSecondaryIndexes = nil
		}, []string{"no index", "allow dynamodb:DescribeTimeToLive"}},
		{"everything", nil, func(f *fakeDynamoDB) {
			global(f, "EVENTUAL", "us-east-1")
			f.table.TableStatus = "ARCHIVED"
			f.table.KeySchema = append(f.table.KeySchema, sorted("rk"))
			f.table.GlobalSecondaryIndexes[1] = types.GlobalSecondaryIndexDescription{IndexName: aws.String("recovery"), IndexStatus: "DELETING"}
			f.ttl = &types.TimeToLiveDescription{}
		}, []string{"ARCHIVED", "rk (RANGE, S)", "the key of its index", "must project its keys", "DELETING", "MREC", "time to live"}},
		// A table whose scans would read many large results, unless no scan reads them.
		{"large results", hourly, large(100*gb, 1_000_000), []string{"104 KB on average…reads 100 GB (13107200 read units)…ChunkTable…ScanEvery"}},
		{"not counted yet", hourly, large(100*gb, 0), []string{"104857600 KB on average"}},
		{"one GB", hourly, large(gb, gb/4096), []string{"4 KB on average"}},
		{"less than one GB", hourly, large(gb-1, 10), nil},
		{"records alone", hourly, large(100*gb, 100*gb/4095), nil},
		{"a scan a day", nil, large(24*gb-1, 10), nil},
		{"no scan", func(o *dynamostore.Options) { o.ScanEvery = -1 }, large(100*gb, 1000), nil},
		{"three replicas", strong, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-central-1", "eu-west-1", "eu-west-3"); f.ttl = off }, nil},
		{"own region not listed", strong, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-west-1", "eu-west-3"); f.ttl = nil }, nil},
		{"two and a witness", strong, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-west-1"); witness(f, "ACTIVE"); f.ttl = off }, nil},
		{"time to live not supported", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.refuse = refusing("DescribeTimeToLive", validation("not supported"))
		}, nil},
		{"time to live denied", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.refuse = refusing("DescribeTimeToLive", errDenied)
		}, []string{"allow dynamodb:DescribeTimeToLive"}},
		{"one region", strong, func(*fakeDynamoDB) {}, []string{"Options.Consistency is strong, and it is a table in one region; create a table with strong consistency"}},
		{"MREC", strong, func(f *fakeDynamoDB) { global(f, "EVENTUAL", "eu-west-1") }, []string{"Options.Consistency is strong…MREC…eu-west-1:…in two regions…create another table"}},
		{"MREC of 2017", strong, func(f *fakeDynamoDB) { f.table.GlobalTableVersion = aws.String("2017.11.29") }, []string{"Options.Consistency is strong…MREC…other regions"}},
		{"time to live on", strong, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-west-1", "eu-west-3") }, []string{`time to live is on for attribute "ttl"…switch it off`}},
		{"too few replicas", strong, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-west-1"); f.ttl = off }, []string{"it has 2 replicas and 0 witnesses"}},
		{"replica being created", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.ttl, f.table.Replicas[1].ReplicaStatus = off, "CREATING"
		}, []string{"replica in eu-west-3 is being created"}},
		{"replica being updated", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.ttl, f.table.Replicas[1].ReplicaStatus = off, "UPDATING"
		}, nil},
		{"replica without a status", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.ttl, f.table.Replicas[1].ReplicaStatus = off, ""
		}, nil},
		{"time to live being switched on", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.ttl.TimeToLiveStatus = "ENABLING"
		}, []string{"time to live is on"}},
		{"replica gone", strong, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.ttl, f.table.Replicas[0].ReplicaStatus = off, "REGION_DISABLED"
		}, []string{"replica in eu-west-1 is REGION_DISABLED"}},
		{"witness being deleted", strong, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-west-1"); witness(f, "DELETING"); f.ttl = off }, []string{"witness in eu-west-2 is DELETING"}},
		{"scans off", func(o *dynamostore.Options) { strong(o); o.ScanEvery = -1 }, func(f *fakeDynamoDB) { global(f, "STRONG", "eu-west-1", "eu-west-3"); f.ttl = off }, []string{"scans are off…expired items stay"}},
		{"much that is not of the store", func(o *dynamostore.Options) { strong(o); o.Prefix = "ONCE#"; o.ScanEvery = time.Hour }, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			f.ttl, f.table.TableSizeBytes = off, aws.Int64(4<<30)
		}, []string{"reads all 4 GB (524288 read units)…expired records then stay for longer"}},
		{"much, all of the store", func(o *dynamostore.Options) { strong(o); o.ScanEvery = time.Hour }, func(f *fakeDynamoDB) {
			global(f, "STRONG", "eu-west-1", "eu-west-3")
			large(4*gb, 4<<20)(f)
			f.ttl = off
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := goodTable()
			tt.change(fake)
			wantProblems(t, newStore(t, fake, tt.opts).Check(t.Context()), tt.want)
			queries := 1
			if tt.name == "no index, and none wanted" {
				queries = 0
			}
			if tt.want == nil && (fake.count("PutItem") != 1 || fake.count("Query") != queries || len(fake.all()) != 0) {
				t.Errorf("%d claims and %d queries, which left %v; want one and %d, and nothing left", fake.count("PutItem"), fake.count("Query"), fake.all(), queries)
			}
		})
	}
}

// wantProblems checks the problems of one table: a string for each, with parts
// separated by "…".
func wantProblems(t *testing.T, err error, want []string) {
	t.Helper()
	var schema *dynamostore.SchemaError
	if len(want) == 0 && err == nil {
		return
	}
	if !errors.As(err, &schema) || len(schema.Problems) != len(want) || !strings.HasPrefix(err.Error(), `dynamostore: table "`+schema.Table+`" cannot be used as a store:`) {
		t.Fatalf("got %v, want %d problems", err, len(want))
	}
	for i, problem := range schema.Problems {
		if !containsInOrder(problem.Error(), strings.Split(want[i], "…")) || !strings.Contains(err.Error(), "\n  - "+problem.Error()) {
			t.Errorf("problem %q; want %q, in %v", problem, want[i], err)
		}
	}
	if missing := (*types.ResourceNotFoundException)(nil); strings.Contains(want[0], "does not exist") && !errors.As(err, &missing) {
		t.Errorf("%v does not wrap its cause", err)
	}
}

func containsInOrder(text string, parts []string) bool {
	for _, part := range parts {
		if part == "$" { // the end
			return text == ""
		}
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

func TestCheck_EmptyReply(t *testing.T) {
	t.Parallel()
	silent := dynamotest.Intercept(newFake(), func(_ context.Context, c *dynamotest.Call) { c.Out = &dynamodb.DescribeTableOutput{} })
	if err := newStore(t, silent).Check(t.Context()); err == nil {
		t.Error("it passed")
	}
}

// slowDynamoDB creates tables like the service: a table can be described a moment
// later, is CREATING for a while, and accepts a time to live only then.
type slowDynamoDB struct {
	*fakeDynamoDB
	invisible, creating time.Duration
	created             time.Time
}

func slow(invisible, creating time.Duration) *slowDynamoDB {
	s := &slowDynamoDB{fakeDynamoDB: withoutTables(), invisible: invisible, creating: creating}
	s.Client = dynamotest.Intercept(s.Client, s.call)
	return s
}

func (s *slowDynamoDB) call(ctx context.Context, c *dynamotest.Call) {
	switch c.Op {
	case "CreateTable":
		time.Sleep(time.Millisecond) // time for others to call it too
		if c.Do(ctx); c.Err == nil {
			s.mu.Lock()
			s.created = time.Now()
			s.mu.Unlock()
		}
	case "DescribeTable":
		switch c.Do(ctx); {
		case c.Err != nil:
		case s.age() < s.invisible:
			c.Err = operationError("DescribeTable", &types.ResourceNotFoundException{})
		case s.age() < s.invisible+s.creating:
			c.Out.(*dynamodb.DescribeTableOutput).Table.TableStatus = types.TableStatusCreating
		}
	case "UpdateTimeToLive":
		if s.age() < s.invisible+s.creating {
			c.Err = operationError("UpdateTimeToLive", &types.ResourceInUseException{Message: aws.String("Table is being created")})
			return
		}
		c.Do(ctx)
	default:
		c.Do(ctx)
	}
}

func (s *slowDynamoDB) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.created)
}

// Eight processes at once: one creates, and all return when the table is complete.
func TestCreateTable_Race(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := slow(time.Second, 10*time.Second)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				time.Sleep(time.Duration(i/2) * 4 * time.Second) // some find it missing, some CREATING, some ACTIVE
				s := newStore(t, slow)
				if err := s.CreateTable(t.Context()); err != nil {
					t.Error(err)
				}
				if err := s.Check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := slow.count("UpdateTimeToLive"); n != 1 {
			t.Errorf("time to live was switched on %d times, want once, by the creator", n)
		}
		if n := slow.count("CreateTable"); n < 2 {
			t.Error("there was no race: the test is void")
		}
	})
}

// The creator sees the table ACTIVE some time after others do.
func TestCreateTable_WaitsForTheTimeToLiveOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := goodTable()
		fake.ttl = &types.TimeToLiveDescription{TimeToLiveStatus: "DISABLED"}
		time.AfterFunc(2*time.Second, func() {
			fake.mu.Lock()
			defer fake.mu.Unlock()
			fake.ttl = goodTable().ttl
		})
		if err := newStore(t, fake).CreateTable(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCreateTable_DoesNotRepair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			change func(*fakeDynamoDB)
			within time.Duration
		}{
			"TTL off":           {func(f *fakeDynamoDB) { f.ttl = nil }, 6 * time.Second},
			"no index":          {func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes = nil }, 0},
			"no index, TTL off": {func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes, f.ttl = nil, nil }, 0},
			"being deleted":     {func(f *fakeDynamoDB) { f.table.TableStatus = "DELETING" }, 0},
		} {
			fake := goodTable()
			tt.change(fake)
			began := time.Now()
			err := newStore(t, fake).CreateTable(t.Context())
			var schema *dynamostore.SchemaError
			if !errors.As(err, &schema) {
				t.Errorf("%s: got %v, want a SchemaError", name, err)
			}
			if took := time.Since(began); took > tt.within {
				t.Errorf("%s: it took %s", name, took)
			}
			if fake.count("CreateTable")+fake.count("UpdateTimeToLive") != 0 {
				t.Errorf("%s: an existing table was changed", name)
			}
		}
	})
}

func TestCreateTable_TimeToLiveSwitchedOnByAnother(t *testing.T) {
	t.Parallel()
	fake := withoutTables()
	fake.refuse = func(operation string, n int) error {
		if operation == "UpdateTimeToLive" { // another process is faster
			fake.db.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
				TableName:               aws.String(tableName),
				TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)},
			})
		}
		return nil
	}
	if err := newStore(t, fake).CreateTable(t.Context()); err != nil {
		t.Error(err)
	}
	if fake.count("UpdateTimeToLive") != 1 {
		t.Error("it was not tried: the test is void")
	}
}

func TestCreateTable_Denied(t *testing.T) {
	t.Parallel()
	for call, refuse := range map[string]func(string, int) error{
		"DescribeTable":      refusing("DescribeTable", errDenied),
		"a later one":        refusing("DescribeTable", errDenied, 2, 3, 4),
		"CreateTable":        refusing("CreateTable", errDenied),
		"UpdateTimeToLive":   refusing("UpdateTimeToLive", errDenied),
		"DescribeTimeToLive": refusing("DescribeTimeToLive", errDenied),
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := withoutTables()
			fake.refuse = refuse
			operation := call
			if call == "a later one" {
				operation = "DescribeTable"
			}
			began := time.Now()
			err := newStore(t, fake).CreateTable(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "dynamostore: ") || !strings.Contains(err.Error(), "allow dynamodb:"+operation) {
				t.Errorf("%s: got %v", call, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: it took %s", call, took)
			}
		})
	}
}

// It ends with the context, or after three minutes, with the cause of the wait.
func TestCreateTable_Ends(t *testing.T) {
	t.Parallel()
	for budget, slow := range map[time.Duration]*slowDynamoDB{30 * time.Second: slow(0, time.Hour), 3 * time.Minute: slow(time.Hour, 0)} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := t.Context(), func() {}
			if budget < time.Minute {
				ctx, cancel = context.WithTimeout(ctx, budget)
			}
			defer cancel()
			err := newStore(t, slow).CreateTable(ctx)
			missing := (*types.ResourceNotFoundException)(nil)
			if byContext := errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "CREATING"); byContext != (budget < time.Minute) || !byContext && !errors.As(err, &missing) {
				t.Errorf("got %v, want the cause of the wait", err)
			}
			if took := slow.age(); took > budget || took < budget-2*time.Second {
				t.Errorf("it took %s, want %s", took, budget)
			}
		})
	}
}
