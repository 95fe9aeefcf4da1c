package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/tests/engine"
)

// cloud returns the address of LocalStack, started on first use.
var cloud = sync.OnceValues(func() (endpoint string, err error) {
	endpoint, stopCloud, err = engine.LocalStack()
	return endpoint, err
})

var stopCloud func()

// A table is created, checked and used: on DynamoDB Local, and through
// LocalStack, which also knows the caller's identity.
func TestCommandLineOnTables(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func() (string, error){"DynamoDBLocal": database, "LocalStack": cloud} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint, err := find()
			if err != nil {
				t.Fatal(err)
			}
			table := tableName()
			o := newOperator(t, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
			store := func(args ...string) []string {
				return append(args, "--table", table, "--endpoint", endpoint, "--region", "us-east-1")
			}
			o.wants(1, []string{"ResourceNotFoundException", "once table create"}, store("table", "check")...)
			o.wants(1, []string{"once table create"}, store("list")...)
			o.wants(0, []string{"can be used as a store"}, store("table", "create")...)
			o.wants(0, []string{"can be used as a store"}, store("table", "create")...) // again
			o.wants(0, []string{`"ok": true`}, store("table", "check", "--json")...)

			s, err := dynamostore.New(dynamostore.NewClient(engine.Config(endpoint)), table)
			if err != nil {
				t.Fatal(err)
			}
			strand(t, s, guideCharge, guideNoCharge, guideRefund)
			large := completeLarge(t, s)
			for _, more := range [][]string{nil, {"--no-index"}} {
				o.wants(0, []string{"POST /charges#wiF9Nlkg_8wN", "refund#"}, store(append(more, "list", "--state", "unknown")...)...)
				o.wants(0, []string{"given up"}, store(append(more, "list", "--exhausted")...)...)
				o.wants(0, []string{string(guideCharge.RecordID())}, store(append(more, "show", "#wiF9Nlkg_8wN")...)...)
				o.wants(0, []string{"2 due"}, store(append(more, "reconcile")...)...)
			}
			if got := o.wants(0, nil, store("list", "--json")...); strings.Count(got, "\n") != 4 {
				t.Errorf("the whole list is\n%s", got)
			}
			// A record that is not on a list is found only by a full scan.
			o.wants(3, []string{"--scan"}, store("show", "#"+large.RecordID().KeyHash())...)
			shown := o.wants(0, nil, store("show", "#"+large.RecordID().KeyHash(), "--scan", "--result", "--json")...)
			var doc struct {
				Bytes  int `json:"result_bytes"`
				Result string
			}
			if err := json.Unmarshal([]byte(shown), &doc); err != nil || len(doc.Result) != largeResult || doc.Bytes <= 4<<10 {
				t.Errorf("a large result is shown as %d bytes of %d stored, %v", len(doc.Result), doc.Bytes, err)
			}

			said := o.wants(0, []string{"is completed", `"outcome":"written"`}, store("resolve", "#wiF9Nlkg_8wN", "--status", "201", "--completed", "{}", "--reason", "why", "--yes")...)
			if _, _, audit := o.once(store("resolve", "refund", "--scope", "acme", "--key", "r-9", "--final", "a", "--message", "b", "--reason", "why", "--yes")...); (name == "LocalStack") != strings.Contains(audit, `"aws":"arn:aws:`) {
				t.Errorf("the audit's caller: %s%s", said, audit)
			}
			o.wants(4, []string{"another outcome"}, store("resolve", "#wiF9Nlkg_8wN", "--scan", "--not-executed", "--token", "aa", "--reason", "why", "--yes")...)

			got := o.wants(0, nil, store("stats", "--json")...)
			var stats struct {
				Records, Unknown int
				Items            int     `json:"items_read"`
				Units            float64 `json:"read_units"`
			}
			if err := json.Unmarshal([]byte(got), &stats); err != nil || stats.Records != 4 || stats.Unknown != 1 || stats.Items <= stats.Records || stats.Units <= 0 {
				t.Errorf("%v: %s", err, got)
			}
		})
	}
}

// largeResult is larger than an item of DynamoDB, also compressed.
const largeResult = 800 << 10

// completeLarge leaves a completed record with its result in chunks.
func completeLarge(t *testing.T, s *dynamostore.Store) idempotent.Key {
	t.Helper()
	g, err := idempotent.New(s)
	if err != nil {
		t.Fatal(err)
	}
	k := idempotent.Key{Operation: "report", Scope: "acme", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
	var text strings.Builder
	for text.Len() < largeResult {
		text.WriteString(rand.Text())
	}
	out, err := idempotent.DoOutcome(t.Context(), g, k, func(context.Context) (string, error) { return text.String()[:largeResult], nil })
	if err != nil || !out.Stored {
		t.Fatal(out.Stored, err)
	}
	return k
}

// Each missing prerequisite is one readable error.
func TestCommandLineFindsNoStore(t *testing.T) {
	t.Parallel()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	o := newOperator(t)
	o.wants(2, []string{"no store is named"}, "list")
	o.wants(2, []string{"both"}, "list", "--table", "once", "--file", "once.db")
	o.wants(1, []string{"missing AWS region"}, "list", "--table", "once")
	o.wants(1, []string{"no AWS credentials", "AWS_ACCESS_KEY_ID=test"}, "list", "--table", "once", "--region", "us-east-1", "--endpoint", endpoint)
	o.wants(1, []string{"no AWS credentials", "--profile"}, "list", "--table", "once", "--region", "us-east-1")
	o.wants(1, []string{"nobody"}, "list", "--table", "once", "--region", "us-east-1", "--profile", "nobody")
	o.env = append(o.env, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	o.wants(2, []string{"invalid table name"}, "list", "--table", "x", "--region", "us-east-1", "--endpoint", endpoint)
	o.wants(1, []string{"connection refused"}, "list", "--table", "once", "--region", "us-east-1", "--endpoint", "http://127.0.0.1:1")
	for _, args := range [][]string{{"list"}, {"table", "check"}} {
		if _, _, stderr := o.once(append(args, "--table", tableName(), "--region", "us-east-1", "--endpoint", endpoint)...); strings.Contains(stderr, "goroutine ") {
			t.Errorf("the error is a stack trace:\n%s", stderr)
		}
	}
}

// A table of another kind, and one without the index.
func TestCommandLineChecksTables(t *testing.T) {
	t.Parallel()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	create := func(key string) (table string) {
		table = tableName()
		if _, err := dynamostore.NewClient(engine.Config(endpoint)).CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName:            &table,
			BillingMode:          types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(key), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(key), KeyType: types.KeyTypeHash}},
		}); err != nil {
			t.Fatal(err)
		}
		return table
	}
	o := newOperator(t, dynamoEnv(t, create("id"))...)
	o.wants(1, []string{"\n  - its key is id", "\n  - it has no index", "\n  - its time to live is off"}, "table", "check")
	o.wants(1, []string{`"ok": false`, `"its key is id`}, "table", "check", "--json")

	table := create("pk")
	o = newOperator(t, dynamoEnv(t, table)...)
	strand(t, openTable(t, table), guideCharge)
	o.wants(1, []string{"--no-index", "once table check"}, "list", "--due")
	o.wants(0, []string{"POST /charges#wiF9Nlkg_8wN"}, "list", "--due", "--no-index")
	o.wants(1, []string{"it has no index"}, "table", "check")
}

// Expired records are deleted with their large results; nothing else is.
func TestCommandLinePurges(t *testing.T) {
	t.Parallel()
	table := tableName()
	env := dynamoEnv(t, table)
	o := newOperator(t, env...)
	o.wants(0, nil, "table", "create")
	s := openTable(t, table)
	strand(t, s, guideCharge)
	fresh, old := completeLarge(t, s), completeLarge(t, s)
	r, err := s.Get(t.Context(), old.RecordID())
	if err != nil || r.Chunks.Count < 2 {
		t.Fatalf("%d chunks, %v", r.Chunks.Count, err)
	}
	aged := *r // with the Version that its chunks have
	aged.Settled, aged.Expires = r.Settled.AddDate(0, 0, -2), r.Expires.AddDate(0, 0, -2)
	if met, err := s.Replace(t.Context(), aged, r.Version); met != nil || err != nil {
		t.Fatal(met, err)
	}
	before := items(t, table)
	o.wants(0, []string{"1 record would be removed"}, "purge")
	if n := items(t, table); n != before {
		t.Errorf("a dry run left %d of %d items", n, before)
	}
	o.wants(0, []string{"1 record removed", `"action":"purge"`, `"count":1`}, "purge", "--yes")
	if n, want := items(t, table), before-1-r.Chunks.Count; n != want {
		t.Errorf("%d items are left of %d, want %d", n, before, want)
	}
	o.wants(0, []string{"charge", "unknown"}, "list")
	o.wants(0, nil, "show", string(fresh.RecordID()), "--result")
}

// items returns how many items a table has.
func items(t *testing.T, table string) int {
	t.Helper()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	out, err := dynamostore.NewClient(engine.Config(endpoint)).Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, Select: types.SelectCount})
	if err != nil || out.LastEvaluatedKey != nil {
		t.Fatal(err)
	}
	return int(out.Count)
}

// A record that this version cannot read is reported, and does not hide the
// others.
func TestCommandLineMeetsALaterVersion(t *testing.T) {
	t.Parallel()
	table := tableName()
	o := newOperator(t, dynamoEnv(t, table)...)
	o.wants(0, nil, "table", "create")
	strand(t, openTable(t, table), guideCharge, guideNoCharge)
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dynamostore.NewClient(engine.Config(endpoint)).UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName:                 &table,
		Key:                       map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: string(guideNoCharge.RecordID())}},
		UpdateExpression:          aws.String("SET v = :later"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":later": &types.AttributeValueMemberN{Value: "2"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"--state=unknown", "--due", "--limit=10"} {
		o.wants(1, []string{"POST /charges#wiF9Nlkg_8wN", "deploy the newer version", "1 record could not be read"}, "list", list)
	}
}
