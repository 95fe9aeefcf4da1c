// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/tabledef"
)

// part is a part of a service with permissions on the table.
type part struct {
	name      string
	operation string // the only one whose records it may use; empty: all
	grant     func(*infra.IdempotencyTable, awsiam.IGrantable) awsiam.Grant
	walk      func(*testing.T, *recorder) // through the calls that it makes
}

func handlerOf(operation string) part {
	return part{"handler", operation, func(records *infra.IdempotencyTable, to awsiam.IGrantable) awsiam.Grant {
		return records.GrantHandler(to, jsii.String(operation))
	}, func(t *testing.T, r *recorder) { walkHandler(t, r, operation) }}
}

var grantees = []part{
	handlerOf("charge"),
	{"reconciler", "", (*infra.IdempotencyTable).GrantReconciler, walkReconciler},
	{"viewer", "", (*infra.IdempotencyTable).GrantViewer, walkViewer},
	{"operator", "", (*infra.IdempotencyTable).GrantOperator, walkOperator},
}

// G12: each part may do what it does with the table, and nothing beside it. The
// calls are those that the store makes in memory. IAM decides as in iam_test.go.
func TestPoliciesAllowWhatTheStoreDoes(t *testing.T) {
	parts := append([]part{handlerOf("POST /charges/{id}"), handlerOf("a*?$#b"), handlerOf("x#" + strings.Repeat("y", 43))}, grantees...)
	for _, p := range parts {
		t.Run(p.name+" "+p.operation, func(t *testing.T) {
			stack := newStack()
			wantLeastPrivilege(t, stack, p, infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), database{Client: dynamotest.New("records", "orders")})
		})
		t.Run(p.name+" "+p.operation+" of a shared table", func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			db := database{Client: dynamotest.New("orders"), shared: true}
			engine.CreateShared(t, db, "records")
			wantLeastPrivilege(t, stack, p, infra.IdempotencyTableFrom(stack, jsii.String("Records"),
				awsdynamodb.TableV2_FromTableArn(stack, jsii.String("Table"), jsii.String(importedTable)), sharedLayout()), db)
		})
	}
}

// sharedLayout is the layout of package engine.
func sharedLayout() *infra.TableLayout {
	o := dynamostore.Options{}
	engine.SharedLayout(&o)
	return &infra.TableLayout{PartitionKey: &o.PartitionKey, SortKey: &o.SortKey, Prefix: &o.Prefix, TimeToLiveAttribute: &o.TTLAttribute}
}

func wantLeastPrivilege(t *testing.T, stack awscdk.Stack, p part, records *infra.IdempotencyTable, db database) {
	t.Helper()
	p.grant(records, newRole(stack, "Role"))
	wantRefusals(t, stack)
	policy := policyOf(t, stack)
	r := &recorder{database: db, silent: db, arn: symbolic(stack.Resolve(records.Table.TableArn())), seen: map[string]request{}}
	r.Client = dynamotest.Intercept(db, r.call)
	synctest.Test(t, func(t *testing.T) { p.walk(t, r) })
	for _, call := range r.seen {
		wantAllowed(t, policy, call, true)
	}
	neighbours := neighboursOf(p, r)
	for _, call := range neighbours {
		wantAllowed(t, policy, call, false)
	}
	if len(r.seen) < 5 || len(neighbours) < 50 {
		t.Errorf("%d calls and %d neighbours were tried, want 5 and 50", len(r.seen), len(neighbours))
	}
	granted := map[string]bool{}
	for _, s := range policy {
		for _, action := range s.Action {
			granted[action+" on "+s.Resource[0]] = true
		}
	}
	if used := r.used(); !maps.Equal(granted, used) {
		t.Errorf("it may do %q, and does %q", slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)))
	}
}

func wantAllowed(t *testing.T, policy []statement, call request, want bool) {
	t.Helper()
	if got, err := allows(policy, call); err != nil || got != want {
		t.Errorf("%v: allowed is %v (%v), want %v", call, got, err, want)
	}
}

// neighboursOf returns requests that differ from a call of the part in one thing:
// the table, the index, the action or a key.
func neighboursOf(p part, r *recorder) (all []request) {
	used := r.used()
	for _, id := range slices.Sorted(maps.Keys(r.seen)) {
		call := r.seen[id]
		on := func(resource string) {
			if !used[call.action+" on "+resource] {
				all = append(all, request{call.action, resource, call.context})
			}
		}
		on("<Other.Arn>")
		on(r.arn + "s")
		on(r.arn + "/index/recovery2")
		on(r.arn + "/index/recovery")
		on(r.arn + "/stream/2026-11-22T00:00:00.000")
		on(r.arn)
		for _, action := range []string{
			"PutItem", "GetItem", "UpdateItem", "DeleteItem", "BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "Query", "Scan",
			"PartiQLSelect", "PartiQLInsert", "PartiQLUpdate", "PartiQLDelete", "DescribeTable", "DescribeTimeToLive", "UpdateTable", "UpdateTimeToLive",
			"DeleteTable", "CreateTable", "CreateBackup", "ExportTableToPointInTime", "RestoreTableToPointInTime", "PutResourcePolicy",
			"GetRecords", "UpdateContinuousBackups", "EnableKinesisStreamingDestination", "TagResource",
		} {
			if action = "dynamodb:" + action; !used[action+" on "+call.resource] {
				all = append(all, request{action, call.resource, call.context})
			}
		}
		keys := call.context["dynamodb:LeadingKeys"]
		with := func(keys ...string) {
			all = append(all, request{call.action, call.resource, map[string][]string{"dynamodb:LeadingKeys": keys}})
		}
		writes := slices.Contains([]string{"dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}, call.action)
		if p.operation == "" && !(writes && p.name != "viewer") {
			continue // it may read any item
		}
		with()
		with("settings")
		if prefix := r.prefix(); prefix != "" { // items that are not the store's
			bare := strings.TrimPrefix(keys[0], prefix)
			for _, other := range []string{bare, "ORDER#" + bare, strings.ToLower(prefix) + bare, prefix[:len(prefix)-1], prefix, " " + keys[0]} {
				with(other)
				with(keys[0], other)
			}
		}
		with(keys[0], "settings")
		if call.action == "dynamodb:BatchWriteItem" { // it would write without a condition, and could delete
			with(keys[0][:strings.LastIndex(keys[0][:strings.LastIndex(keys[0], "#")], "#")])
		} else if call.action != "dynamodb:BatchGetItem" {
			with(keys[0] + "#00#0")
		}
		if p.operation == "" || keys[0] == r.prefix()+tabledef.OpenKey {
			continue
		}
		rest := strings.TrimPrefix(keys[0], r.prefix()+p.operation)
		named := strings.NewReplacer("*", "another", "?", "1").Replace(p.operation) // if * and ? had a meaning
		if named != p.operation {
			with(r.prefix() + named + rest)
		}
		for _, other := range []string{"refund", p.operation + "2", p.operation + "#", p.operation + "#x", strings.ToUpper(p.operation) + "_", p.operation[1:], "", "*"} {
			with(r.prefix() + other + rest)
			with(append(slices.Clone(keys), r.prefix()+other+rest)...)
		}
	}
	return all
}

// database is a DynamoDB in memory.
type database struct {
	dynamostore.Client
	shared bool // the table of records is that of package engine
}

// options are those of a store in the table of records.
func (d database) options(o *dynamostore.Options) {
	if d.shared {
		engine.SharedLayout(o)
	}
}

// prefix begins the keys of records.
func (d database) prefix() string {
	o := dynamostore.Options{}
	d.options(&o)
	return o.Prefix
}

// recorder is a DynamoDB in memory that records the permissions which the calls on
// the table of records need.
type recorder struct {
	database
	silent database // the same data, without recording
	arn    string   // of the table

	mu   sync.Mutex
	seen map[string]request
}

// note records a call on the table, or on its index if there is a suffix.
func (r *recorder) note(action, suffix string, keys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call := request{action: "dynamodb:" + action, resource: r.arn + suffix}
	if keys != nil {
		call.context = map[string][]string{"dynamodb:LeadingKeys": keys}
	}
	r.seen[call.String()] = call
}

// used returns the actions, with the resources.
func (r *recorder) used() map[string]bool {
	used := map[string]bool{}
	for _, call := range r.seen {
		used[call.action+" on "+call.resource] = true
	}
	return used
}

type item = map[string]types.AttributeValue

func keyOf(it item) string {
	if key, ok := it["PK"].(*types.AttributeValueMemberS); ok { // of a shared table
		return key.Value
	}
	return it["pk"].(*types.AttributeValueMemberS).Value
}

// call records a call. A transaction needs the permissions of the writes in it.
func (r *recorder) call(ctx context.Context, c *dynamotest.Call) {
	suffix, keys := "", []string(nil)
	switch in := c.In.(type) {
	case *dynamodb.GetItemInput:
		keys = append(keys, keyOf(in.Key))
	case *dynamodb.PutItemInput:
		keys = append(keys, keyOf(in.Item))
	case *dynamodb.DeleteItemInput:
		keys = append(keys, keyOf(in.Key))
	case *dynamodb.BatchGetItemInput:
		for _, key := range in.RequestItems["records"].Keys {
			keys = append(keys, keyOf(key))
		}
	case *dynamodb.BatchWriteItemInput:
		for _, write := range in.RequestItems["records"] {
			if write.PutRequest != nil {
				keys = append(keys, keyOf(write.PutRequest.Item))
			} else {
				keys = append(keys, keyOf(write.DeleteRequest.Key))
			}
		}
	case *dynamodb.QueryInput:
		suffix, keys = "/index/"+*in.IndexName, append(keys, in.ExpressionAttributeValues[":shard"].(*types.AttributeValueMemberS).Value)
	case *dynamodb.TransactWriteItemsInput:
		for _, write := range in.TransactItems {
			switch {
			case write.Put == nil:
				c.Err = errors.New("the recorder knows only puts in transactions")
				return
			case *write.Put.TableName == "records":
				r.note("PutItem", "", keyOf(write.Put.Item))
			}
		}
		c.Do(ctx)
		return
	}
	r.note(c.Op, suffix, keys...)
	c.Do(ctx)
}

// storeOn returns a store in the table of records.
func storeOn(t *testing.T, db database) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.New(db, "records", db.options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func guardOn(t *testing.T, db database, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	t.Helper()
	quiet := func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) }
	g, err := idempotent.New(storeOn(t, db), append(optFns, quiet)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// large returns a string that is too large for a record, and does not compress.
func large() string {
	var b strings.Builder
	for range 1000 {
		b.WriteString(rand.Text())
	}
	return b.String()
}

func aKey(operation string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: "test", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
}

// start opens the table as a function does while it starts.
func start(t *testing.T, r *recorder) {
	t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
	t.Setenv("ONCE_TABLE", "records")
	before := len(r.seen)
	if _, err := dynamostore.Open(t.Context(), r.options, func(o *dynamostore.Options) { o.Client = r.database }); err != nil || len(r.seen) != before+1 {
		t.Errorf("the start made %d calls, want 1 (%v)", len(r.seen)-before, err)
	}
}

// walkHandler runs through the start of a function, and the paths of a request.
func walkHandler(t *testing.T, r *recorder, operation string) {
	start(t, r)
	g := guardOn(t, r.database, func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"reserve", "charge"} })
	order := func() types.TransactWriteItem {
		table := "orders"
		return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: item{"pk": &types.AttributeValueMemberS{Value: rand.Text()}}}}
	}
	refused := errors.New("refused")
	for name, work := range map[string]func(context.Context) (string, error){
		"first":   func(context.Context) (string, error) { return "done", nil },
		"large":   func(context.Context) (string, error) { return large(), nil },
		"retried": func(context.Context) (string, error) { return "", idempotent.NotExecuted(refused) },
		"final":   func(context.Context) (string, error) { return "", idempotent.Final("declined", "No.") },
		"unknown": func(context.Context) (string, error) { return "", idempotent.Unknown(refused) },
		"steps": func(ctx context.Context) (string, error) {
			if _, err := dynamostore.CommitStep(ctx, "reserve", 1, order()); err != nil {
				return "", err
			}
			_, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
			return "done", err
		},
		"commit":       func(ctx context.Context) (string, error) { return "", dynamostore.Commit(ctx, "done", order()) },
		"large commit": func(ctx context.Context) (string, error) { return "", dynamostore.Commit(ctx, large(), order()) },
	} {
		key := aKey(operation)
		for range 2 { // the second is a replay, a takeover or a refusal
			_, err := idempotent.Do(t.Context(), g, key, work)
			if errors.As(err, new(*idempotent.StoreError)) || errors.As(err, new(*idempotent.ReplayUnavailableError)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		key.Fingerprint = idempotent.FingerprintBytes([]byte("other"))
		if _, err := idempotent.Do(t.Context(), g, key, work); !errors.As(err, new(*idempotent.MismatchError)) {
			t.Errorf("%s: got error %v, want MismatchError", name, err)
		}
	}

	// A request that waits for another reads its record.
	waits := guardOn(t, r.database, func(o *idempotent.Options) { o.WaitFor = time.Second })
	key := aKey(operation)
	_, err := idempotent.Do(t.Context(), waits, key, func(ctx context.Context) (int, error) {
		_, err := idempotent.Do(t.Context(), waits, key, func(context.Context) (int, error) { return 0, nil })
		if !errors.As(err, new(*idempotent.InProgressError)) {
			t.Errorf("got error %v, want InProgressError", err)
		}
		return 1, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// unknowns leaves records with an unknown outcome of two operations, without
// recording the calls.
func unknowns(t *testing.T, r *recorder, n int) (ids []idempotent.RecordID) {
	g := guardOn(t, r.silent, func(o *idempotent.Options) { o.ReconcileAfter = time.Millisecond })
	for i := range n {
		key := aKey([]string{"charge", "refund"}[i%2])
		if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", errors.New("no reply") }); err == nil {
			t.Error("no error")
		}
		ids = append(ids, key.RecordID())
	}
	time.Sleep(time.Hour) // of the bubble; they are due
	return ids
}

// walkReconciler runs through the paths of a due record.
func walkReconciler(t *testing.T, r *recorder) {
	start(t, r)
	answers := []idempotent.Resolution{
		idempotent.Resolved("done"), idempotent.Resolved(large()), idempotent.ResolvedFinal("declined", "No."), idempotent.Later(time.Hour),
	}
	ids := unknowns(t, r, len(answers)+1)
	asked := 0
	_, err := kit.Reconcile(t.Context(), guardOn(t, r.database), func(_ context.Context, record idempotent.PendingRecord) (idempotent.Resolution, error) {
		switch i := slices.Index(ids, record.ID); {
		case i < 0:
			return idempotent.Later(time.Hour), nil // of the viewer
		case i < len(answers):
			asked++
			return answers[i], nil
		}
		asked++
		return idempotent.ProvenNotExecuted(record.Token), nil
	}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
	if err != nil || asked != len(ids) {
		t.Errorf("%d resolvers were called (%v), want %d", asked, err, len(ids))
	}
	for _, id := range ids { // as a webhook would
		if err := guardOn(t, r.database).Resolve(t.Context(), id, idempotent.Resolved("done")); errors.As(err, new(*idempotent.StoreError)) {
			t.Error(err)
		}
	}
	// A replay of a large result reads it, as the cache of a guard or a resolver does.
	if _, err := idempotent.Do(t.Context(), guardOn(t, r.database), storeLarge(t, r), func(context.Context) (string, error) { return "", nil }); err != nil {
		t.Error(err)
	}
}

// storeLarge stores a result in chunks, without recording the calls.
func storeLarge(t *testing.T, r *recorder) idempotent.Key {
	key := aKey("charge")
	if _, err := idempotent.Do(t.Context(), guardOn(t, r.silent), key, func(context.Context) (string, error) { return large(), nil }); err != nil {
		t.Fatal(err)
	}
	return key
}

// walkViewer makes the calls of the commands that read.
func walkViewer(t *testing.T, r *recorder) {
	store := storeOn(t, r.database)
	ids := unknowns(t, r, 2)
	if _, err := store.Get(t.Context(), ids[0]); err != nil {
		t.Error(err)
	}
	listed := 0
	for _, err := range store.Due(t.Context(), time.Time{}) {
		if listed++; err != nil {
			t.Error(err)
		}
	}
	for _, err := range store.Exhausted(t.Context()) {
		t.Errorf("nothing is exhausted: %v", err)
	}
	for _, err := range store.Scan(t.Context()) {
		if listed++; err != nil {
			t.Error(err)
		}
	}
	large, err := store.Get(t.Context(), storeLarge(t, r).RecordID())
	if err != nil || large.Chunks.Count == 0 {
		t.Fatal(large, err)
	}
	if _, err := store.GetChunks(t.Context(), large.ID, large.Version, large.Chunks.Count); err != nil {
		t.Error(err)
	}
	if listed != 4 {
		t.Errorf("%d records were listed, want 2 twice", listed)
	}
	// The check of a table is complete, but for the claim, which is an operator's.
	reads := r.database
	reads.Client = dynamotest.Intercept(r.database, func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "PutItem" {
			c.Err = errors.New("denied")
			return
		}
		c.Do(ctx)
	})
	schema, _ := errors.AsType[*dynamostore.SchemaError](storeOn(t, reads).Check(t.Context()))
	if schema == nil || len(schema.Problems) != 1 {
		t.Errorf("the table: %v, want only the claim", schema)
	}
}

// walkOperator makes the calls of all commands but table create.
func walkOperator(t *testing.T, r *recorder) {
	walkViewer(t, r)
	walkReconciler(t, r)
	if err := storeOn(t, r.database).Check(t.Context()); err != nil {
		t.Error(err)
	}
	store, ids := storeOn(t, r.database), []idempotent.RecordID{}
	for record, err := range storeOn(t, r.silent).Scan(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, record.ID)
	}
	slices.Sort(ids)
	deleted := 0
	for _, id := range ids {
		record, err := store.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if current, err := store.Delete(t.Context(), id, record.Version); err == nil && current == nil {
			deleted++
		}
	}
	name, ended := string(aKey("charge").RecordID())+"#"+strings.Repeat("0", 32)+"#0", &types.AttributeValueMemberN{Value: "1"}
	chunk := item{"pk": &types.AttributeValueMemberS{Value: name}, "ttl": ended}
	if r.shared {
		chunk = engine.SharedKey(name)
		chunk["expires_at"] = ended
	}
	chunk["v"], chunk["part"] = &types.AttributeValueMemberN{Value: "1"}, &types.AttributeValueMemberB{Value: []byte("x")}
	table := "records"
	if _, err := r.silent.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: chunk}); err != nil {
		t.Fatal(err)
	}
	if purged, err := store.PurgeChunks(t.Context(), time.Now()); err != nil || purged != 1 || deleted == 0 {
		t.Errorf("%d records and %d chunks were removed (%v)", deleted, purged, err)
	}
}

// Without operations a handler may do nothing, so it is refused; with "*" it may
// use the records of all.
func TestOperationsOfAHandler(t *testing.T) {
	stack := newStack()
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	records.GrantHandler(newRole(stack, "Role"))
	records.GrantHandler(newRole(stack, "Other"), nil, jsii.String(""))
	for i, name := range []string{"POST /charges#*", "charge#???", "charge#", "post /charges", "Post /charges", "orders#create", "post charges", "get-orders /x", "*", "GET /*"} {
		records.GrantHandler(newRole(stack, fmt.Sprint("Named", i)), jsii.String(name))
	}
	wantRefusals(t, stack, `GrantHandler has no operations: name the operations of the function's code, or "*" for all`,
		"one of the operations of GrantHandler has no name: remove it",
		`one of the operations of GrantHandler is "POST /charges#*", a pattern of record ids: want "POST /charges"`,
		`one of the operations of GrantHandler is "charge#???", a pattern of record ids: want "charge"`,
		`one of the operations of GrantHandler is "charge#", a pattern of record ids: want "charge"`,
		`one of the operations of GrantHandler is "post /charges": want "POST /charges", because a method has capital letters`,
		`one of the operations of GrantHandler is "Post /charges": want "POST /charges", because a method has capital letters`)

	stack = newStack()
	records = infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	parameter := awscdk.NewCfnParameter(stack, jsii.String("Operation"), nil)
	records.GrantHandler(newRole(stack, "All"), jsii.String("*"))
	records.GrantHandler(newRole(stack, "Parameter"), parameter.ValueAsString(), jsii.String("refund"))
	wantRefusals(t, stack)
	for _, policy := range resources(t, stack, "AWS::IAM::Policy") {
		want := "*#" + strings.Repeat("?", 43) + " #open"
		if strings.HasPrefix(policy.id, "Parameter") {
			want = "<Operation>#" + strings.Repeat("?", 43) + " refund#" + strings.Repeat("?", 43) + " #open"
		}
		s := statements(t, policy.Properties["PolicyDocument"])
		if got := strings.Join(s[0].Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"], " "); got != want {
			t.Errorf("%s is for the keys %q, want %q", policy.id, got, want)
		}
	}
}

// A customer managed key may be used through DynamoDB, and not for anything else. A
// table of large results can have another key. The grants that are returned have every
// statement.
func TestGrantsOfKeys(t *testing.T) {
	for _, p := range grantees {
		stack := newStackIn("eu-central-1")
		of := map[string]awskms.Key{"Records": newKey(stack, "Key"), "Chunks": newKey(stack, "LargeKey")}
		records := infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{Encryption: with(of["Records"])})
		records.KeepLargeResultsIn(newTable(stack, "Chunks", awsdynamodb.TablePropsV2{Encryption: with(of["Chunks"])}))
		granted := p.grant(records, newRole(stack, "Role"))
		wantGranted(t, stack, granted.PrincipalStatements(), resources(t, stack, "AWS::IAM::Policy")[0].Properties["PolicyDocument"])
		policy := policyOf(t, stack)
		via := map[string][]string{"kms:ViaService": {"dynamodb.eu-central-1.amazonaws.com"}}
		for _, key := range of {
			arn := symbolic(stack.Resolve(key.KeyArn()))
			for _, action := range []string{"Decrypt", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo", "DescribeKey"} {
				wantAllowed(t, policy, request{"kms:" + action, arn, via}, true)
				wantAllowed(t, policy, request{"kms:" + action, arn, nil}, false)
				wantAllowed(t, policy, request{"kms:" + action, arn, map[string][]string{"kms:ViaService": {"s3.eu-central-1.amazonaws.com"}}}, false)
				wantAllowed(t, policy, request{"kms:" + action, arn, map[string][]string{"kms:ViaService": {"dynamodb.eu-west-1.amazonaws.com"}}}, false)
				wantAllowed(t, policy, request{"kms:" + action, "<Other.Arn>", via}, false)
			}
			for _, action := range []string{"CreateGrant", "ScheduleKeyDeletion", "PutKeyPolicy", "DisableKey", "Sign"} {
				wantAllowed(t, policy, request{"kms:" + action, arn, via}, false)
			}
		}
	}
}

// A role of another account needs the permission of its own policy and that of the
// table and of the key. All have the same conditions.
func TestGrantsToAnotherAccount(t *testing.T) {
	stack := newStackIn("eu-central-1")
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{Encryption: with(newKey(stack, "Key"))})
	role := awsiam.Role_FromRoleArn(stack, jsii.String("Role"), jsii.String("arn:aws:iam::210987654321:role/charge"), nil)
	granted := records.GrantHandler(role, jsii.String("charge"))
	if !*granted.Success() {
		t.Error("the grant has no success")
	}
	table := resources(t, stack, "AWS::DynamoDB::GlobalTable")[0].Properties["Replicas"].([]any)[0].(map[string]any)
	ofTable := statements(t, table["ResourcePolicy"].(map[string]any)["PolicyDocument"])
	wantGranted(t, stack, granted.ResourceStatements(), table["ResourcePolicy"].(map[string]any)["PolicyDocument"])
	record := string(aKey("charge").RecordID())
	for keys, want := range map[string]bool{record: true, "refund" + strings.TrimPrefix(record, "charge"): false, "settings": false} {
		wantAllowed(t, ofTable, request{"dynamodb:PutItem", "<Table>", map[string][]string{"dynamodb:LeadingKeys": {keys}}}, want)
	}
	wantAllowed(t, ofTable, request{"dynamodb:Scan", "<Table>", nil}, false)
	ofKey := statements(t, resources(t, stack, "AWS::KMS::Key")[0].Properties["KeyPolicy"])
	ofKey = slices.DeleteFunc(ofKey, func(s statement) bool { return slices.Contains(s.Action, "kms:*") }) // the account itself
	wantAllowed(t, ofKey, request{"kms:Decrypt", "<Key>", map[string][]string{"kms:ViaService": {"dynamodb.eu-central-1.amazonaws.com"}}}, true)
	wantAllowed(t, ofKey, request{"kms:Decrypt", "<Key>", nil}, false)
	if text := asJSON(t, table["ResourcePolicy"]); !strings.Contains(text, `{"AWS":"arn:aws:iam::210987654321:role/charge"}`) {
		t.Errorf("the policy of the table is %s", text)
	}
}

// A reconciler of another account lists the table, whatever the keys are. Within the
// account the policy of the key stays as it was.
func TestGrantsToReconcilersOfAccounts(t *testing.T) {
	stack := newStackIn("eu-central-1")
	for name, role := range map[string]awsiam.IRole{
		"Records": newRole(stack, "Role"),
		"Foreign": awsiam.Role_FromRoleArn(stack, jsii.String("Imported"), jsii.String("arn:aws:iam::210987654321:role/reconcile"), nil),
	} {
		props := &awsdynamodb.TablePropsV2{}
		if name == "Records" {
			props.Encryption = with(newKey(stack, "Key"))
		}
		infra.NewIdempotencyTable(stack, jsii.String(name), props).GrantReconciler(role)
	}
	for _, table := range resources(t, stack, "AWS::DynamoDB::GlobalTable") {
		replica := table.Properties["Replicas"].([]any)[0].(map[string]any)
		if policy, foreign := replica["ResourcePolicy"].(map[string]any); foreign != strings.HasPrefix(table.id, "Foreign") {
			t.Errorf("%s has a policy: %t", table.id, foreign)
		} else if foreign {
			wantAllowed(t, statements(t, policy["PolicyDocument"]), request{"dynamodb:Scan", "<Foreign>", nil}, true)
		}
	}
	if of := statements(t, resources(t, stack, "AWS::KMS::Key")[0].Properties["KeyPolicy"]); len(of) != 1 {
		t.Errorf("the policy of the key has %d statements, want the account's", len(of))
	}
}

// The account of a principal may not be known, such as that of an organisation. The
// policy of the table allows it, and nothing is known to be wrong.
func TestGrantsToAnUnknownAccount(t *testing.T) {
	for name, row := range map[string]struct {
		table func(awscdk.Stack) awsdynamodb.ITable
		to    awsiam.IGrantable
		want  int // statements in the policy of the table
	}{
		"created": {func(s awscdk.Stack) awsdynamodb.ITable {
			return infra.NewIdempotencyTable(s, jsii.String("Records"), nil).Table
		}, awsiam.NewOrganizationPrincipal(jsii.String("o-1234567890")), 2},
		"imported": {func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.TableV2_FromTableArn(s, jsii.String("Table"), jsii.String(importedTable))
		}, awsiam.NewOrganizationPrincipal(jsii.String("o-1234567890")), 0},
		"imported, and known at the deployment": {func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.TableV2_FromTableArn(s, jsii.String("Table"), jsii.String(importedTable))
		}, awsiam.NewAccountPrincipal(awscdk.Aws_ACCOUNT_ID()), 0},
	} {
		stack := newStackIn("eu-central-1")
		records := infra.IdempotencyTableFrom(stack, jsii.String("From"), row.table(stack), nil)
		granted := records.GrantHandler(row.to, jsii.String("charge"))
		if got := len(*granted.ResourceStatements()); got != row.want {
			t.Errorf("%s: the policy of the table has %d statements, want %d", name, got, row.want)
		}
		wantNoMessages(t, stack)
	}
}

// wantGranted compares the actions and resources of a grant with those of a synthesised
// policy.
func wantGranted(t *testing.T, stack awscdk.Stack, granted *[]awsiam.PolicyStatement, document any) {
	t.Helper()
	add := func(to map[string]bool, s any) {
		var of struct{ Action, Resource any }
		decode(t, asJSON(t, s), &of)
		to[asJSON(t, of)] = true
	}
	got, want := map[string]bool{}, map[string]bool{}
	for _, s := range *granted {
		add(got, stack.Resolve(s.ToStatementJson()))
	}
	for _, s := range document.(map[string]any)["Statement"].([]any) {
		add(want, s)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the grant has %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// policyOf returns the only policy of a stack.
func policyOf(t *testing.T, stack awscdk.Stack) []statement {
	t.Helper()
	policies := resources(t, stack, "AWS::IAM::Policy")
	if len(policies) != 1 {
		t.Fatalf("got %d policies, want 1", len(policies))
	}
	return statements(t, policies[0].Properties["PolicyDocument"])
}

// statements returns the statements of a synthesised policy.
func statements(t *testing.T, document any) []statement {
	t.Helper()
	var policy struct {
		Version   string
		Statement []statement
	}
	decode(t, asJSON(t, resolved(document)), &policy)
	if policy.Version != "2012-10-17" {
		t.Errorf("the policy has the version %q, in which ${*} is no variable", policy.Version)
	}
	return policy.Statement
}

// resolved replaces the functions of CloudFormation in a value with symbols.
func resolved(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = resolved(v[i])
		}
		return all
	case map[string]any:
		if len(v) == 1 && (v["Ref"] != nil || v["Fn::GetAtt"] != nil || v["Fn::Join"] != nil) {
			return symbolic(v)
		}
		all := map[string]any{}
		for name := range v {
			all[name] = resolved(v[name])
		}
		return all
	}
	return v
}

// symbolic returns a value as text, in which <ID.Attribute> stands for an attribute
// of a resource.
func symbolic(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		if get, ok := v["Fn::GetAtt"].([]any); ok {
			return fmt.Sprintf("<%v.%v>", get[0], get[1])
		}
		if join, ok := v["Fn::Join"].([]any); ok {
			var parts []string
			for _, part := range join[1].([]any) {
				parts = append(parts, symbolic(part))
			}
			return strings.Join(parts, join[0].(string))
		}
		return fmt.Sprintf("<%v>", v["Ref"])
	}
	return fmt.Sprint(v)
}

func newRole(stack awscdk.Stack, id string) awsiam.Role {
	return awsiam.NewRole(stack, jsii.String(id), &awsiam.RoleProps{AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil)})
}
