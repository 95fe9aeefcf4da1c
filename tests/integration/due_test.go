package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// reader counts what is read.
type reader struct {
	*dynamodb.Client
	mu                     sync.Mutex
	queries, entries, gets int
}

func (r *reader) Query(ctx context.Context, in *dynamodb.QueryInput, optFns ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	out, err := r.Client.Query(ctx, in, optFns...)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queries++
		r.entries += int(out.ScannedCount)
	}
	return out, err
}

func (r *reader) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	out, err := r.Client.BatchGetItem(ctx, in, optFns...)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, items := range out.Responses {
			r.gets += len(items)
		}
	}
	return out, err
}

// ownTable returns a store on a new table.
func (db *database) ownTable(t *testing.T, client dynamostore.Client) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, "once-due-"+strings.ToLower(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = db.client().DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: aws.String(s.Table())})
	})
	return s
}

// fill writes n completed records, due ones that are unknown, and exhausted ones.
func fill(t *testing.T, s *dynamostore.Store, n, due, exhausted int, at time.Time) {
	t.Helper()
	var writes sync.WaitGroup
	slots := make(chan struct{}, 16)
	insert := func(change func(*driver.Record)) {
		slots <- struct{}{}
		writes.Go(func() {
			defer func() { <-slots }()
			key := newKey()
			r := driver.Record{
				ID: key.RecordID(), State: driver.StateCompleted, Reason: driver.ReasonResult, Attempt: 1,
				Fingerprint: key.Fingerprint, LeaseEnd: at, Created: at, Settled: at, Encoding: "json", Result: []byte("1"),
				Expires: at.Add(24 * time.Hour),
			}
			rand.Read(r.Version[:])
			change(&r)
			if met, err := s.Insert(t.Context(), r, at); met != nil || err != nil {
				t.Error(met, err)
			}
		})
	}
	for i := range n {
		insert(func(r *driver.Record) {
			switch {
			case i < due:
				r.State, r.Encoding, r.Result, r.Expires, r.Due = driver.StateUnknown, "", nil, time.Time{}, at.Add(-time.Duration(i)*time.Second)
			case i < due+exhausted:
				r.State, r.Encoding, r.Result, r.Expires, r.Due, r.Exhausted = driver.StateUnknown, "", nil, time.Time{}, at, true
			case i < due+exhausted+50: // later
				r.State, r.Encoding, r.Result, r.Expires, r.Due = driver.StateUnknown, "", nil, time.Time{}, at.Add(time.Hour)
			}
		})
	}
	writes.Wait()
}

// In a table of 10,000 records of which 100 are due, the index finds them with at
// most two items read for each, and a scan reports its cost.
func TestDue(t *testing.T) {
	t.Parallel()
	const records, due, exhausted = 10_000, 100, 7
	client := &reader{Client: local.client()}
	s := local.ownTable(t, client)
	at := time.Now().UTC().Truncate(time.Millisecond)
	fill(t, s, records, due, exhausted, at)

	found := 0
	for r, err := range s.Due(t.Context(), at) {
		if err != nil || r.State != driver.StateUnknown || r.Due.After(at) {
			t.Fatal(r, err)
		}
		found++
	}
	t.Logf("%d due of %d: %d queries read %d entries, and %d records", found, records, client.queries, client.entries, client.gets)
	if found != due || client.entries+client.gets > 2*due {
		t.Errorf("%d records were listed and %d items read, want %d and at most %d", found, client.entries+client.gets, due, 2*due)
	}
	n := 0
	for r, err := range s.Exhausted(t.Context()) {
		if err != nil || !r.Exhausted {
			t.Fatal(r, err)
		}
		n++
	}
	if n != exhausted {
		t.Errorf("%d exhausted records were listed, want %d", n, exhausted)
	}
	// Stop after one record: the others are not read.
	for range s.Due(t.Context(), at) {
		break
	}

	var last dynamostore.ScanProgress
	pages := 0
	scanning := s.WithoutIndex(func(o *dynamostore.ScanOptions) {
		o.Progress = func(p dynamostore.ScanProgress) { last = p; pages++ }
	})
	n = 0
	for r, err := range scanning.Due(t.Context(), at) {
		if err != nil {
			t.Fatal(r, err)
		}
		n++
	}
	t.Logf("by a scan: %d due, %d items and %.1f read units in %d pages", n, last.Items, last.ReadUnits, pages)
	if n != due || last.Items != records || last.ReadUnits == 0 || pages < 4 {
		t.Errorf("the scan found %d records, read %d items for %v units in %d pages", n, last.Items, last.ReadUnits, pages)
	}
	n = 0
	for _, err := range scanning.Exhausted(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != exhausted {
		t.Errorf("the scan found %d exhausted records, want %d", n, exhausted)
	}
}

// A record that cannot be read does not hide the others, and the list ends with
// its context.
func TestDueDamaged(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		s := db.ownTable(t, db.client())
		at := time.Now().UTC().Truncate(time.Millisecond)
		fill(t, s, 5, 3, 0, at)
		_, err := db.client().PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(s.Table()), Item: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "charge#damaged"}, "v": number(9), "st": &types.AttributeValueMemberS{Value: "U"},
			"rk": &types.AttributeValueMemberS{Value: "u#07"}, "rat": number(1),
		}})
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range map[string]driver.DueLister{"index": s, "scan": s.WithoutIndex()} {
			good, bad := 0, 0
			for r, err := range list.Due(t.Context(), at) {
				switch {
				case err == nil:
					good++
				case r.ID == "charge#damaged":
					bad++
				default:
					t.Errorf("%s: %v", name, err)
				}
			}
			if good != 3 || bad != 1 {
				t.Errorf("%s: %d records and %d errors were listed, want 3 and 1", name, good, bad)
			}
			g := guardOver(t, list.(driver.Store))
			report, err := idempotent.ReconcileDue(t.Context(), g, func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
				return idempotent.Later(0), nil
			}, func(o *idempotent.ReconcileOptions) { o.DryRun = true })
			if err != nil || report.Postponed != 3 || report.Failed != 1 {
				t.Errorf("%s: the report: %s, %v", name, report, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for _, err := range list.Due(ctx, at) {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: a cancelled list yields %v", name, err)
				}
			}
		}
	})
}

// Without the index, the error says what to do.
func TestDueWithoutIndex(t *testing.T) {
	t.Parallel()
	name := "plain-" + strings.ToLower(rand.Text())
	_, err := local.client().CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dynamostore.New(local.client(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Due(t.Context(), time.Now()) {
		if err == nil || !strings.Contains(fmt.Sprint(err), "WithoutIndex") {
			t.Errorf("got error %v, want one that says what to do", err)
		}
	}
	for _, err := range s.WithoutIndex().Due(t.Context(), time.Now()) {
		t.Errorf("the list of an empty table has an entry: %v", err)
	}
}
