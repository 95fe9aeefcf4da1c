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

func TestCheck_Passes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fakeDynamoDB){
		"as designed":           func(*fakeDynamoDB) {},
		"being updated":         func(f *fakeDynamoDB) { f.table.TableStatus = "UPDATING" },
		"index being updated":   func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].IndexStatus = "UPDATING" },
		"TTL being switched on": func(f *fakeDynamoDB) { f.ttl.TimeToLiveStatus = "ENABLING" },
		"provisioned throughput": func(f *fakeDynamoDB) {
			f.table.BillingModeSummary = &types.BillingModeSummary{BillingMode: "PROVISIONED"}
		},
		"global, one region only": func(f *fakeDynamoDB) { global(f, "EVENTUAL", "eu-central-1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := goodTable()
			change(fake)
			if err := newStore(t, fake).Check(t.Context()); err != nil {
				t.Error(err)
			}
			if fake.count("PutItem") != 1 || fake.count("Query") != 1 || len(fake.all()) != 0 {
				t.Errorf("%d claims and %d queries, which left %v; want one of each, and nothing left", fake.count("PutItem"), fake.count("Query"), fake.all())
			}
		})
	}
}

func global(f *fakeDynamoDB, consistency types.MultiRegionConsistency, regions ...string) {
	f.table.GlobalTableVersion = aws.String("2019.11.21")
	f.table.MultiRegionConsistency = consistency
	for _, region := range regions {
		f.table.Replicas = append(f.table.Replicas, replica(region))
	}
}

// FM49: one of the problems is replication to other regions.
func TestCheck_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*fakeDynamoDB)
		want   []string // one string per problem, in order, with parts separated by "…"
	}{
		{"no table", func(f *fakeDynamoDB) { f.Client = dynamotest.New() }, []string{"does not exist…region…CreateTable"}},
		{"being created", func(f *fakeDynamoDB) { f.table.TableStatus = "CREATING" }, []string{"CREATING…ACTIVE"}},
		{"its key is lost", func(f *fakeDynamoDB) { f.table.TableStatus = "INACCESSIBLE_ENCRYPTION_CREDENTIALS" }, []string{"INACCESSIBLE_ENCRYPTION_CREDENTIALS"}},
		{"another key", func(f *fakeDynamoDB) {
			f.table.KeySchema = []types.KeySchemaElement{hash("id")}
			f.table.AttributeDefinitions = append(f.table.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String("id"), AttributeType: "S"})
		}, []string{"key is id (HASH, S) and must be pk (HASH, S)…another table"}},
		{"a key of another type", func(f *fakeDynamoDB) { f.table.AttributeDefinitions[1].AttributeType = "B" }, []string{"key is pk (HASH, B) and must be pk (HASH, S)"}},
		{"a sort key", func(f *fakeDynamoDB) {
			f.table.KeySchema = append(f.table.KeySchema, sorted("rat"))
		}, []string{"key is pk (HASH, S), rat (RANGE, N) and must be pk (HASH, S)"}},
		{"TTL off", func(f *fakeDynamoDB) { f.ttl = &types.TimeToLiveDescription{TimeToLiveStatus: "DISABLED"} }, []string{`time to live is off…switch it on for attribute "ttl"`}},
		{"TTL never switched on", func(f *fakeDynamoDB) { f.ttl = nil }, []string{"time to live is off"}},
		{"TTL being switched off", func(f *fakeDynamoDB) { f.ttl.TimeToLiveStatus = "DISABLING" }, []string{"time to live is off"}},
		{"TTL on another attribute", func(f *fakeDynamoDB) { f.ttl.AttributeName = aws.String("expires") }, []string{`time to live is on attribute "expires" and must be on "ttl"`}},
		{"no index", func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes = f.table.GlobalSecondaryIndexes[:1] }, []string{`no index "recovery"…rk (HASH, S), rat (RANGE, N)…INCLUDE (st, dt, lease)`}},
		{"index with other keys", func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[1].KeySchema = []types.KeySchemaElement{hash("rk")}
		}, []string{`index "recovery" is rk (HASH, S) and must be rk (HASH, S), rat (RANGE, N)`}},
		{"index keys of another type", func(f *fakeDynamoDB) { f.table.AttributeDefinitions[0].AttributeType = "S" }, []string{"rk (HASH, S), rat (RANGE, S) and must be rk (HASH, S), rat (RANGE, N)"}},
		{"index with projection ALL", func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].Projection.ProjectionType = "ALL" }, []string{"must project its keys and st, dt, lease…with more, writes cost more…INCLUDE (st, dt, lease)"}},
		{"index with projection KEYS_ONLY", func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[1].Projection = &types.Projection{ProjectionType: "KEYS_ONLY"}
		}, []string{"must project its keys and st, dt, lease…with less, reconciliation cannot list records"}},
		{"index with another attribute", func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[1].Projection.NonKeyAttributes = []string{"st", "dt", "lease", "res"}
		}, []string{"must project its keys and st, dt, lease"}},
		{"index without a projection", func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].Projection = nil }, []string{"must project its keys"}},
		{"index not ready", func(f *fakeDynamoDB) { f.table.GlobalSecondaryIndexes[1].IndexStatus = "CREATING" }, []string{`index "recovery" is CREATING…ACTIVE`}},
		{"MREC", func(f *fakeDynamoDB) { global(f, "EVENTUAL", "eu-central-1", "us-east-1", "us-west-2") }, []string{"MREC…us-east-1, us-west-2:…the handler of a key can run in two regions…use a table in one region…strong consistency"}},
		{"MREC by default", func(f *fakeDynamoDB) { global(f, "", "us-east-1") }, []string{"MREC"}},
		{"MREC, own region unknown", func(f *fakeDynamoDB) { global(f, "", "us-east-1"); f.table.TableArn = nil }, []string{"MREC"}},
		{"MREC of 2017", func(f *fakeDynamoDB) { f.table.GlobalTableVersion = aws.String("2017.11.29") }, []string{"MREC…other regions"}},
		{"MRSC", func(f *fakeDynamoDB) {
			global(f, "STRONG", "us-east-1", "us-west-2")
			f.ttl = &types.TimeToLiveDescription{TimeToLiveStatus: "DISABLED"}
		}, []string{"MRSC…Options.Consistency is not set…transactions fail…ONCE_CONSISTENCY=strong"}},
		{"the claim denied", func(f *fakeDynamoDB) { f.refuse = refusing("PutItem", errDenied) }, []string{"a claim was denied (a viewer may not write, a function must)…allow dynamodb:PutItem"}},
		{"the claim throttled", func(f *fakeDynamoDB) {
			f.refuse = refusing("PutItem", &types.ProvisionedThroughputExceededException{})
		}, []string{"a claim failed: …ProvisionedThroughputExceeded"}},
		{"conditions ignored", func(f *fakeDynamoDB) {
			f.Client = dynamotest.Intercept(f.Client, func(ctx context.Context, c *dynamotest.Call) {
				if in, ok := c.In.(*dynamodb.PutItemInput); ok {
					c.In = &dynamodb.PutItemInput{TableName: in.TableName, Item: in.Item}
				}
				c.Do(ctx)
			})
		}, []string{"a claim failed: it was written although its condition is false"}},
		{"the list denied", func(f *fakeDynamoDB) { f.refuse = refusing("Query", errDenied) }, []string{`a query of the index "recovery" failed: …allow dynamodb:Query`}},
		{"all denied", func(f *fakeDynamoDB) {
			f.refuse = func(string, int) error { return &smithy.GenericAPIError{Code: "AccessDeniedException"} }
		}, []string{"dynamodb:DescribeTable", "dynamodb:PutItem", "dynamodb:Query"}},
		{"DescribeTable denied", func(f *fakeDynamoDB) { f.refuse = refusing("DescribeTable", errDenied) }, []string{"allow dynamodb:DescribeTable"}},
		{"DescribeTimeToLive denied, and no index", func(f *fakeDynamoDB) {
			f.refuse = refusing("DescribeTimeToLive", errDenied)
			f.table.GlobalSecondaryIndexes = nil
		}, []string{"no index", "allow dynamodb:DescribeTimeToLive"}},
		{"everything", func(f *fakeDynamoDB) {
			global(f, "EVENTUAL", "us-east-1")
			f.table.TableStatus = "ARCHIVED"
			f.table.KeySchema = append(f.table.KeySchema, sorted("rk"))
			f.table.GlobalSecondaryIndexes[1] = types.GlobalSecondaryIndexDescription{IndexName: aws.String("recovery"), IndexStatus: "DELETING"}
			f.ttl = &types.TimeToLiveDescription{}
		}, []string{"ARCHIVED", "rk (RANGE, S)", "the key of its index", "must project its keys", "DELETING", "MREC", "time to live"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := goodTable()
			tt.change(fake)
			err := newStore(t, fake).Check(t.Context())
			var schema *dynamostore.SchemaError
			if !errors.As(err, &schema) || schema.Table != tableName {
				t.Fatalf("got %v, want a SchemaError", err)
			}
			if len(schema.Problems) != len(tt.want) {
				t.Fatalf("%d problems, want %d: %v", len(schema.Problems), len(tt.want), err)
			}
			for i, problem := range schema.Problems {
				if !containsInOrder(problem.Error(), strings.Split(tt.want[i], "…")) {
					t.Errorf("problem %q; want %q", problem, tt.want[i])
				}
				if !strings.Contains(err.Error(), "\n  - "+problem.Error()) {
					t.Errorf("%q does not contain %q", err, problem)
				}
			}
			if !strings.HasPrefix(err.Error(), `dynamostore: table "once" cannot be used as a store:`) {
				t.Errorf("%q begins differently", err)
			}
		})
	}
}

func containsInOrder(text string, parts []string) bool {
	for _, part := range parts {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

func TestCheck_KeepsTheCause(t *testing.T) {
	t.Parallel()
	err := newStore(t, withoutTables()).Check(t.Context())
	if missing := (*types.ResourceNotFoundException)(nil); !errors.As(err, &missing) {
		t.Errorf("%v does not wrap ResourceNotFoundException", err)
	}
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

func TestCreateTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := slow(time.Second, 10*time.Second)
		s := newStore(t, slow)
		if err := s.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if took := slow.age(); took < 11*time.Second || took > 13*time.Second {
			t.Errorf("it returned %s after the creation, want soon after 11s", took)
		}
		// A second call changes nothing.
		creations, updates := slow.count("CreateTable"), slow.count("UpdateTimeToLive")
		if err := s.CreateTable(t.Context()); err != nil {
			t.Error(err)
		}
		if slow.count("CreateTable") != creations || slow.count("UpdateTimeToLive") != updates {
			t.Error("an existing table was changed")
		}
	})
}

func TestCreateTable_IsBilledPerRequest(t *testing.T) {
	t.Parallel()
	fake := withoutTables()
	if err := newStore(t, fake).CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if inputs := sent[dynamodb.CreateTableInput](fake); len(inputs) != 1 || inputs[0].BillingMode != types.BillingModePayPerRequest {
		t.Errorf("got %+v", inputs)
	}
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
	for _, operation := range []string{"DescribeTable", "CreateTable", "UpdateTimeToLive", "DescribeTimeToLive"} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := withoutTables()
				fake.refuse = refusing(operation, errDenied)
				err := newStore(t, fake).CreateTable(t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), "dynamostore: ") || !strings.Contains(err.Error(), "allow dynamodb:"+operation) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestCreateTable_DeniedWhileWaiting(t *testing.T) {
	t.Parallel()
	fake := withoutTables()
	fake.refuse = func(operation string, n int) error {
		if operation == "DescribeTable" && n > 1 {
			return errDenied
		}
		return nil
	}
	if err := newStore(t, fake).CreateTable(t.Context()); err == nil || !strings.Contains(err.Error(), "allow dynamodb:DescribeTable") {
		t.Errorf("got %v", err)
	}
}

func TestCreateTable_Ends(t *testing.T) {
	t.Parallel()
	t.Run("with the context", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			slow := slow(0, time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := newStore(t, slow).CreateTable(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "CREATING") {
				t.Errorf("got %v, want the cause of the wait and the context's error", err)
			}
			if took := slow.age(); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	})
	t.Run("after three minutes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			slow := slow(time.Hour, 0)
			err := newStore(t, slow).CreateTable(t.Context())
			if missing := (*types.ResourceNotFoundException)(nil); !errors.As(err, &missing) {
				t.Errorf("got %v, want the cause of the wait", err)
			}
			if took := slow.age(); took > 3*time.Minute || took < 3*time.Minute-2*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	})
}
