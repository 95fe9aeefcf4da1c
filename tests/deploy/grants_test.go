// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

// Each role of the stack may do exactly what the store does with the table.
func TestGrantsAreWhatTheStoreDoes(t *testing.T) {
	t.Parallel()
	handler, reconciler := &recorder{used: map[string]bool{}}, &recorder{used: map[string]bool{}}
	walkHandler(t, handler)
	walkReconciler(t, reconciler)
	granted := grants(t)
	for role, does := range map[string]*recorder{"ChargesREST": handler, "ChargesURL": handler, "Orders": handler, "ReconcilerFunction": reconciler} {
		if used := slices.Sorted(maps.Keys(does.used)); !slices.Equal(granted[role], used) {
			t.Errorf("%s may do %q, but does %q", role, granted[role], used)
		}
	}
	t.Logf("%v", granted)
}

// grants returns what each role may do with the table of records and its index,
// in the deployed template.
func grants(t *testing.T) map[string][]string {
	t.Helper()
	granted := map[string][]string{}
	for _, r := range stack.resources(t, "AWS::IAM::Policy") {
		var policy struct {
			Roles          []struct{ Ref string }
			PolicyDocument struct {
				Statement []struct{ Action, Resource json.RawMessage }
			}
		}
		if err := json.Unmarshal(r.Properties, &policy); err != nil {
			t.Fatal(err)
		}
		for _, role := range policy.Roles {
			name, _, _ := strings.Cut(role.Ref, "Role")
			for _, s := range policy.PolicyDocument.Statement {
				if resource := string(s.Resource); strings.Contains(resource, "RecordsTable") {
					for _, action := range list(t, s.Action) {
						if strings.Contains(resource, "/index/"+dynamostore.IndexName) {
							action += " " + dynamostore.IndexName
						}
						granted[name] = append(granted[name], action)
					}
				}
			}
			slices.Sort(granted[name])
		}
	}
	return granted
}

// list reads a string or a list of them.
func list(t *testing.T, text json.RawMessage) (all []string) {
	t.Helper()
	var one string
	if json.Unmarshal(text, &one) == nil {
		return []string{one}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// recorder records the actions that a client's calls need on the table of
// records.
type recorder struct {
	mu   sync.Mutex
	used map[string]bool
}

func (r *recorder) guard(t *testing.T, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	t.Helper()
	client := dynamostore.NewClient(stack.cfg, func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
			return s.Initialize.Add(middleware.InitializeMiddlewareFunc("recorder", func(
				ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
			) (middleware.InitializeOutput, middleware.Metadata, error) {
				r.note(middleware.GetOperationName(ctx), in.Parameters)
				return next.HandleInitialize(ctx, in)
			}), middleware.After)
		})
	})
	store, err := dynamostore.New(client, stack.records)
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) }
	g, err := idempotent.New(store, append(optFns, quiet)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// note records a call. Transactions need the actions of their items.
func (r *recorder) note(operation string, in any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch in := in.(type) {
	case *dynamodb.TransactWriteItemsInput:
		for _, item := range in.TransactItems {
			if item.Put != nil && *item.Put.TableName == stack.records {
				r.used["dynamodb:PutItem"] = true
			}
			if item.Update != nil && *item.Update.TableName == stack.records {
				r.used["dynamodb:UpdateItem"] = true
			}
			if item.Delete != nil && *item.Delete.TableName == stack.records {
				r.used["dynamodb:DeleteItem"] = true
			}
			if item.ConditionCheck != nil && *item.ConditionCheck.TableName == stack.records {
				r.used["dynamodb:ConditionCheckItem"] = true
			}
		}
	case *dynamodb.QueryInput:
		if in.IndexName != nil {
			operation += " " + *in.IndexName
		}
		r.used["dynamodb:"+operation] = true
	default:
		r.used["dynamodb:"+operation] = true
	}
}

// large returns a string that is too large for a record, and does not compress.
func large() string {
	var b strings.Builder
	for range 1000 {
		b.WriteString(rand.Text())
	}
	return b.String()
}

// walkHandler runs through the paths of a request.
func walkHandler(t *testing.T, r *recorder) {
	t.Helper()
	g := r.guard(t, func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"reserve", "charge"} })
	item := func() types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: &stack.shop, Item: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "grants#" + rand.Text()},
		}}}
	}
	refused := errors.New("refused")
	for name, work := range map[string]func(context.Context) (string, error){
		"first":   func(context.Context) (string, error) { return "done", nil },
		"large":   func(context.Context) (string, error) { return large(), nil },
		"retried": func(context.Context) (string, error) { return "", idempotent.NotExecuted(refused) },
		"final":   func(context.Context) (string, error) { return "", idempotent.Final("declined", "No.") },
		"unknown": func(context.Context) (string, error) { return "", idempotent.Unknown(refused) },
		"steps": func(ctx context.Context) (string, error) {
			if _, err := dynamostore.CommitStep(ctx, "reserve", 1, item()); err != nil {
				return "", err
			}
			_, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
			return "done", err
		},
		"commit":       func(ctx context.Context) (string, error) { return "", dynamostore.Commit(ctx, "done", item()) },
		"large commit": func(ctx context.Context) (string, error) { return "", dynamostore.Commit(ctx, large(), item()) },
	} {
		key := idempotent.Key{Operation: "grants", Scope: "test", ID: name + rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
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
	waits := r.guard(t, func(o *idempotent.Options) { o.WaitFor = time.Second })
	key := idempotent.Key{Operation: "grants", Scope: "test", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
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

// always returns the same resolution for every record.
func always(r idempotent.Resolution) idempotent.ResolveFunc {
	return func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) { return r, nil }
}

// walkReconciler runs through the paths of a due record.
func walkReconciler(t *testing.T, r *recorder) {
	t.Helper()
	g := r.guard(t, func(o *idempotent.Options) { o.ReconcileAfter = time.Millisecond })
	operation := "grants-" + rand.Text()
	unknown := map[idempotent.RecordID]idempotent.ResolveFunc{}
	for _, resolve := range []idempotent.ResolveFunc{
		always(idempotent.Resolved("done")), always(idempotent.Resolved(large())), always(idempotent.ResolvedFinal("declined", "No.")),
		func(_ context.Context, record idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.ProvenNotExecuted(record.Token), nil
		},
		always(idempotent.Later(time.Hour)),
	} {
		key := idempotent.Key{Operation: operation, Scope: "test", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
		// A short deadline makes a short lease.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := idempotent.Do(ctx, g, key, func(context.Context) (string, error) { return "", errors.New("no reply") })
		cancel()
		if err == nil {
			t.Error("no error")
		}
		unknown[key.RecordID()] = resolve
	}
	settled := map[idempotent.RecordID]bool{}
	eventually(t, 30*time.Second, "the records were due", func() bool {
		_, err := idempotent.ReconcileDue(t.Context(), g, func(ctx context.Context, record idempotent.PendingRecord) (idempotent.Resolution, error) {
			settled[record.ID] = true
			return unknown[record.ID](ctx, record)
		}, func(o *idempotent.ReconcileOptions) { o.Operations, o.Concurrency = []string{operation}, 1 })
		if err != nil {
			t.Fatal(err)
		}
		return len(settled) == len(unknown)
	})
	for id := range unknown { // as a webhook would
		if err := g.Resolve(t.Context(), id, idempotent.Resolved("done")); errors.As(err, new(*idempotent.StoreError)) {
			t.Error(err)
		}
	}
}
