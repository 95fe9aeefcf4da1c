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

	"github.com/once-lambda/once/dynamostore"
)

// slowDynamoDB creates tables like the service: a table can be described a moment
// later, is CREATING for a while, and accepts a time to live only then.
type slowDynamoDB struct {
	*fakeDynamoDB
	invisible, creating time.Duration
	created             time.Time
}

func (s *slowDynamoDB) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, o ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	time.Sleep(time.Millisecond) // time for others to call it too
	out, err := s.fakeDynamoDB.CreateTable(ctx, in, o...)
	if err == nil {
		s.mu.Lock()
		s.created = time.Now()
		s.mu.Unlock()
	}
	return out, err
}

func (s *slowDynamoDB) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.created)
}

func (s *slowDynamoDB) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, o ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	out, err := s.fakeDynamoDB.DescribeTable(ctx, in, o...)
	switch {
	case err != nil:
	case s.age() < s.invisible:
		return nil, operationError("DescribeTable", &types.ResourceNotFoundException{})
	case s.age() < s.invisible+s.creating:
		out.Table.TableStatus = types.TableStatusCreating
	}
	return out, err
}

func (s *slowDynamoDB) UpdateTimeToLive(ctx context.Context, in *dynamodb.UpdateTimeToLiveInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error) {
	if s.age() < s.invisible+s.creating {
		return nil, operationError("UpdateTimeToLive", &types.ResourceInUseException{Message: aws.String("Table is being created")})
	}
	return s.fakeDynamoDB.UpdateTimeToLive(ctx, in, o...)
}

func TestCreateTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowDynamoDB{fakeDynamoDB: withoutTables(), invisible: time.Second, creating: 10 * time.Second}
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
	recorder := &creations{fakeDynamoDB: withoutTables()}
	if err := newStore(t, recorder).CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(recorder.inputs) != 1 || recorder.inputs[0].BillingMode != types.BillingModePayPerRequest {
		t.Errorf("got %+v", recorder.inputs)
	}
}

type creations struct {
	*fakeDynamoDB
	inputs []*dynamodb.CreateTableInput
}

func (c *creations) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, o ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	c.inputs = append(c.inputs, in)
	return c.fakeDynamoDB.CreateTable(ctx, in, o...)
}

// Eight processes at once: one creates, and all return when the table is complete.
func TestCreateTable_Race(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowDynamoDB{fakeDynamoDB: withoutTables(), invisible: time.Second, creating: 10 * time.Second}
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
			fake.DB.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
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
				fake.refuse = deny(operation)
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
			return deny(operation)(operation, n)
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
			slow := &slowDynamoDB{fakeDynamoDB: withoutTables(), creating: time.Hour}
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
			slow := &slowDynamoDB{fakeDynamoDB: withoutTables(), invisible: time.Hour}
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
