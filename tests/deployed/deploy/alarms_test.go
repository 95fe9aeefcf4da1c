// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// Where a cause is produced.
const (
	deployed = "deployed"                 // in functions, on tables of LocalStack
	proxied  = "deployed, behind a proxy" // the same; a proxy answers as DynamoDB, because LocalStack checks no permission
	table    = "on a table of LocalStack" // as a function leaves it
	memory   = "in this process"          // by the guard, which logs what a function logs
)

// cause is a cause of an alarm. find produces it, follows the procedure of
// docs/alarms.md, and fails unless a line of the output names the cause.
type cause struct {
	alarm, cause, where string
	find                func(p *procedure)
}

// Each alarm is traced to each of its causes with the procedure of its section, but to
// traffic that has grown, which only the metrics of DynamoDB show. With -v the lines that
// name the causes are printed.
func TestAlarmsLeadToTheirCauses(t *testing.T) {
	t.Parallel()
	text := sections(t)
	shown := map[string]bool{
		"StoreErrorsLong": true, "FunctionFailsLong": true, // as the alarms without Long
		"DeadLetters": true, // a message: TestTheReconcilerGivesUp
	}
	for _, c := range slices.Concat(storeCauses, functionCauses, reconcilerCauses, recordCauses) {
		shown[c.alarm] = true
		t.Run(c.alarm+"/"+c.cause, func(t *testing.T) {
			t.Parallel()
			t.Log(c.where)
			c.find(&procedure{t, text[c.alarm]})
		})
	}
	for alarm := range text {
		if !shown[alarm] {
			t.Errorf("no cause of %s is played", alarm)
		}
	}
	if len(text) < 20 {
		t.Errorf("only %d alarms were found", len(text))
	}
}

var storeCauses = []cause{
	{"StoreErrors", "the role may not write", proxied, func(p *procedure) {
		refusing := refuse(p.t, "PutItem", "AccessDeniedException")
		p.query(failing(p.t, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": refusing}), "AccessDenied")
		p.once([]string{"ONCE_TABLE=" + stack.records, "AWS_ENDPOINT_URL_DYNAMODB=" + refusing}, 0, "a claim was denied", "table check")
	}},
	{"StoreErrors", "another table", deployed, func(p *procedure) {
		p.query(failing(p.t, map[string]string{"ONCE_TABLE": "mistyped"}), "ResourceNotFound")
		p.once([]string{"ONCE_TABLE=mistyped"}, 1, "the table does not exist in this account, region and endpoint", "table check")
	}},
	{"StoreErrors", "throttled", proxied, func(p *procedure) {
		refusing := refuse(p.t, "PutItem", "ProvisionedThroughputExceededException")
		p.query(failing(p.t, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": refusing}), "ThroughputExceeded")
		p.once([]string{"ONCE_TABLE=" + stack.records, "AWS_ENDPOINT_URL_DYNAMODB=" + refusing}, 1, "a claim failed", "table check")
	}},
	{"StoreErrors", "no route", deployed, func(p *procedure) {
		closed := httptest.NewServer(nil)
		closed.Close()
		p.query(failing(p.t, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": closed.URL}), "connection refused")
		p.once([]string{"ONCE_TABLE=" + stack.records, "AWS_ENDPOINT_URL_DYNAMODB=" + closed.URL}, 1, "connection refused", "table check")
	}},
	{"StoreErrors", "no answer", memory, func(p *procedure) {
		// A connection is accepted, and its requests are never read.
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { silent.Close() })
		store, err := dynamostore.New(dynamostore.NewClient(stack.cfg, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String("http://" + silent.Addr().String()) }), stack.records)
		if err != nil {
			p.t.Fatal(err)
		}
		p.queryLines(loggedOn(p.t, store, func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
			for _, key.ID = range []string{"1", "2"} { // each record has another text, and they are one cause
				ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
				idempotent.Do(ctx, g, key, text("done"))
				cancel()
			}
		}), "2 operation=op cause=deadline exceeded example=")
		p.once([]string{"ONCE_TABLE=" + stack.records}, 0, "can be used as a store", "table check")
	}},
	{"ScanLate", "the scan may not read", proxied, func(p *procedure) {
		name := newTable(p.t)
		env := []string{"ONCE_TABLE=" + name}
		fn := reconciling(p.t, name, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": refuse(p.t, "Scan", "AccessDeniedException")})
		q := &procedure{p.t, sections(p.t)["StoreErrors"]}
		q.query(fn, "Scan")
		p.once(env, 0, "none has ended", "stats")
	}},
	{"ScanLate", "the scan is too slow", table, func(p *procedure) {
		name := newTable(p.t)
		insert(p.t, name, "op", driver.Record{State: driver.StateInProgress, LeaseEnd: time.Now().Add(-time.Hour), Due: time.Now().Add(-time.Hour)})
		if _, err := storeOf(p.t, name).Abandoned(p.t.Context(), time.Now(), func([]driver.Listed) bool { return false }); err != nil {
			p.t.Fatal(err)
		}
		p.once([]string{"ONCE_TABLE=" + name}, 0, "none has ended; the first one began", "stats")
	}},
}

var functionCauses = []cause{
	{"FunctionFails", "the code does not start", deployed, func(p *procedure) {
		p.query(failing(p.t, map[string]string{"ONCE_METRICS_NAMESPACE": ":"}), "Runtime.ExitError")
	}},
	{"FunctionFails", "the time-out", deployed, func(p *procedure) {
		s := newStubborn(p.t, sleep, map[string]string{"RECOVERY": "rerun", "OPERATION": "runbook-time"})
		s.wantKilled(p.t, rand.Text(), aCharge(newCustomer()))
		p.query(function{name: s.name}, "Task timed out")
	}},
	{"FunctionFails", "the memory", deployed, func(p *procedure) {
		name := newTable(p.t)
		s := newStubborn(p.t, kill, map[string]string{"RECOVERY": "reconcile", "OPERATION": charge.Operation, "ONCE_TABLE": name})
		key, customer := rand.Text(), newCustomer()
		s.wantKilled(p.t, key, aCharge(customer))
		p.query(function{name: s.name}, "signal: killed")
		s.afterLease(p.t, key, aCharge(customer))
		p.once([]string{"ONCE_TABLE=" + name}, 0, "lease_ended", "list --state unknown")
	}},
	{"FunctionFails", "an error of the handler", deployed, func(p *procedure) {
		fn := reconciling(p.t, "mistyped", nil).failing(p.t)
		p.logHas(fn, "ResourceNotFound")
		p.nothing(logs(p.t, fn.name))
	}},
	{"NoOutcome", "the store fails", deployed, func(p *procedure) {
		p.query(failing(p.t, map[string]string{"ONCE_TABLE": "mistyped"}), "event=store_error")
	}},
	{"NoOutcome", "the outcome is unknown", deployed, func(p *procedure) {
		p.query(afterKill(p.t), "event=unresolved operation=POST /charges")
	}},
	{"NoOutcome", "the run before was killed", deployed, func(p *procedure) {
		p.query(afterKill(p.t), "event=in_progress operation=POST /charges")
	}},
	played("NoOutcome", "the result has another type", "event=replay_failed", readsAnotherType),
	{"NoOutcome", "no time is left", memory, func(p *procedure) {
		lines := logged(p.t, func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
			ctx = (&idempotenttest.Clock{}).Invocation(ctx, 0)
			if _, err := idempotent.Do(ctx, g, key, text("done")); !errors.As(err, new(*idempotent.NoTimeError)) {
				p.t.Errorf("got %v, want NoTimeError", err)
			}
		})
		p.nothing(lines)
	}},
	{"Unknown", "killed", deployed, func(p *procedure) { p.query(afterKill(p.t), "reason=lease_ended") }},
	played("Unknown", "an error of the handler", "reason=handler_error", once(fails(errors.New("no")))),
	played("Unknown", "a panic", "reason=panic", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		defer func() { recover() }()
		idempotent.Do(ctx, g, key, func(context.Context) (string, error) { panic("no") })
	}),
	played("Unknown", "the provider did not answer", "reason=unknown", once(fails(idempotent.Unknown(errors.New("no"))))),
	played("Unknown", "an interrupted step", "reason=interrupted", once(func(ctx context.Context) (string, error) {
		return idempotent.Step(ctx, "pay", fails(errors.New("no")), func(o *idempotent.StepOptions) { o.AtMostOnce = true })
	}), func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"pay"} }),
	{"Unknown", "the provider may have forgotten the key of a step", memory, func(p *procedure) {
		clock := &idempotenttest.Clock{}
		p.queryLines(logged(p.t, func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
			for range 2 {
				idempotent.Do(clock.Invocation(ctx, time.Minute), g, key, func(ctx context.Context) (string, error) {
					return idempotent.Step(ctx, "pay", fails(errors.New("no")))
				})
				clock.Advance(24 * time.Hour) // DownstreamRetention
			}
		}, func(o *idempotent.Options) {
			o.Now, o.Recovery, o.Steps = clock.Now, idempotent.Resume, []string{"pay"}
		}), "reason=keys_forgotten")
	}},
	played("Unknown", "the predecessor does not know", "reason=predecessor", once(text("done")), func(o *idempotent.Options) {
		o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) {
			return nil, false, idempotent.Unknown(errors.New("killed"))
		}
	}),
	played("Throttles", "a hot key", "4 operation=op key_hash=", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		for range 5 {
			idempotent.Do(ctx, g, key, text("done"))
		}
	}),
	{"IndexThrottles", "many records become unknown", memory, func(p *procedure) {
		q := &procedure{p.t, sections(p.t)["Unknown"]}
		q.queryLines(logged(p.t, func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
			for _, key.ID = range []string{"1", "2", "3"} {
				idempotent.Do(ctx, g, key, fails(errors.New("no")))
			}
		}), "3 operation=op reason=handler_error")
	}},
	played("Misuse", "another payload", "operation=op", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(ctx, g, key, text("done"))
		key.Fingerprint = idempotent.FingerprintBytes([]byte("other"))
		idempotent.Do(ctx, g, key, text("done"))
	}),
}

var reconcilerCauses = []cause{
	{"OldestUnknown", "the provider is down", deployed, func(p *procedure) {
		name := newTable(p.t)
		fn := reconciling(p.t, name, map[string]string{"PROVIDER_URL": "http://127.0.0.1:9"}).due(p.t, name, charge.Operation)
		p.query(fn, "operation=POST /charges error_type=")
		insertDue(p.t, name, charge.Operation)
		p.once([]string{"ONCE_TABLE=" + name}, 0, "POST /charges#", "list --state unknown")
	}},
	{"OldestUnknown", "no resolver", deployed, func(p *procedure) {
		name := newTable(p.t)
		p.query(reconciling(p.t, name, nil).due(p.t, name, "refund"), "operation=refund")
	}},
	{"OldestUnknown", "another namespace", deployed, func(p *procedure) {
		name := newTable(p.t)
		fn := reconciling(p.t, name, map[string]string{"ONCE_METRICS_NAMESPACE": "mistyped"}).working(p.t).due(p.t, name, "refund")
		p.logHas(fn, `"Namespace":"mistyped"`)
	}},
	{"ReconcilerErrors", "no index", deployed, func(p *procedure) {
		name := "runbook-" + strings.ToLower(rand.Text())
		_, err := stack.dynamodb.CreateTable(p.t.Context(), &dynamodb.CreateTableInput{
			TableName: &name, BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		})
		if err != nil {
			p.t.Fatal(err)
		}
		fn, env := reconciling(p.t, name, nil).failing(p.t), []string{"ONCE_TABLE=" + name}
		p.query(fn, "DynamoDB: Query")
		p.once(env, 1, `it has no index "recovery"`, "table check")
		p.once(env, 1, "index", "reconcile --dry-run")
	}},
	{"ReconcilerErrors", "the role may not list", proxied, func(p *procedure) {
		name := newTable(p.t)
		fn := reconciling(p.t, name, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": refuse(p.t, "Query", "AccessDeniedException")})
		p.query(fn.failing(p.t), "allow dynamodb:Query")
		p.once([]string{"ONCE_TABLE=" + name}, 0, "nothing was written", "reconcile --dry-run")
	}},
	{"ReconcilerErrors", "the resolver fails", deployed, func(p *procedure) {
		name := newTable(p.t)
		fn := reconciling(p.t, name, map[string]string{"PROVIDER_URL": "http://127.0.0.1:9"})
		p.query(fn.failing(p.t).due(p.t, name, charge.Operation), "event=reconcile_failed operation=POST /charges")
		insertDue(p.t, name, charge.Operation)
		p.once([]string{"ONCE_TABLE=" + name}, 0, "nothing was written", "reconcile --dry-run")
	}},
	{"ReconcilerErrors", "no time for a record", memory, func(p *procedure) {
		var lines []string
		synctest.Test(p.t, func(t *testing.T) {
			lines = loggedOn(t, memstore.New(), func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
				quiet, err := g.With(func(o *idempotent.Options) { o.Observer, o.Logger = nil, slog.New(slog.DiscardHandler) })
				if err != nil {
					t.Fatal(err)
				}
				idempotent.Do(ctx, quiet, key, fails(errors.New("no")))
				time.Sleep(time.Hour) // until it is due
				ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
				defer cancel()
				later := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
					return idempotent.Later(0), nil
				}
				if _, err := kit.Reconcile(ctx, g, later); err == nil || !strings.Contains(err.Error(), "the time ended before the first record") {
					t.Errorf("the reconciler returned %v", err)
				}
			})
		})
		p.nothing(lines)
	}},
	{"ReconcilerThrottled", "no concurrency", deployed, func(p *procedure) {
		name := newTable(p.t)
		insertDue(p.t, name, charge.Operation)
		fn := reconciling(p.t, name, nil)
		_, err := stack.lambda.PutFunctionConcurrency(p.t.Context(), &lambda.PutFunctionConcurrencyInput{FunctionName: &fn.name, ReservedConcurrentExecutions: aws.Int32(0)})
		if err == nil {
			_, err = stack.lambda.Invoke(p.t.Context(), &lambda.InvokeInput{FunctionName: &fn.name}, func(o *lambda.Options) { o.RetryMaxAttempts = 1 })
		}
		if !errors.As(err, new(*lambdatypes.TooManyRequestsException)) {
			p.t.Errorf("got %v, want TooManyRequestsException", err)
		}
		p.once([]string{"ONCE_TABLE=" + name}, 0, "due         1 now", "stats")
	}},
	{"ReconcilerSilent", "no schedule", table, func(p *procedure) {
		name := newTable(p.t)
		insert(p.t, name, "op", driver.Record{State: driver.StateInProgress, LeaseEnd: time.Now().Add(-time.Hour), Due: time.Now().Add(-time.Hour)})
		p.once([]string{"ONCE_TABLE=" + name}, 0, "its lease ended without an outcome: unknown", "reconcile")
	}},
	{"Exhausted", "no evidence for seven days", table, func(p *procedure) {
		name := newTable(p.t)
		env := []string{"ONCE_TABLE=" + name}
		insert(p.t, name, "op", driver.Record{State: driver.StateUnknown, Reason: driver.ReasonUnknown, Due: time.Now(), Exhausted: true})
		p.once(env, 0, "given up", "list --exhausted")
		p.once(env, 0, "1 written", "requeue --exhausted --reason", "the outage is over", "--yes")
		p.once(env, 0, "no such records", "list --exhausted")
	}},
}

var recordCauses = []cause{
	{"Contradicted", "evidence of another outcome", table, func(p *procedure) {
		name := newTable(p.t)
		var id idempotent.RecordID
		p.queryLines(loggedOn(p.t, storeOf(p.t, name), func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
			id = key.RecordID()
			idempotent.Do(ctx, g, key, text("done"))
			g.Resolve(ctx, id, idempotent.Resolved("other"))
		}), "key_hash="+id.KeyHash())
		p.once([]string{"ONCE_TABLE=" + name}, 0, "completed", "show", "#"+id.KeyHash(), "--scan")
	}},
	played("ContradictedOften", "a wrong resolver", "operation=op", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(ctx, g, key, text("done"))
		g.Resolve(ctx, key.RecordID(), idempotent.ResolvedFinal("failed", "No."))
	}),
	played("ReplayFailed", "the type changed", "does not decode into", readsAnotherType),
	played("ReplayFailed", "the version changed", "version", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(ctx, g, key, text("done"))
		idempotent.Do(ctx, g, key, text("done"), func(o *idempotent.Operation) { o.ResultVersion = "2" })
	}),
	played("ReplayFailed", "another key of the Sealer", "seal", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(ctx, g, key, text("done"), func(o *idempotent.Operation) { o.Seal = kit.NewSealer() })
		idempotent.Do(ctx, g, key, text("done"), func(o *idempotent.Operation) { o.Seal = kit.NewSealer() })
	}),
	played("ReplayFailed", "the result was not stored", "result", func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(ctx, g, key, fails(errors.New("no")))
		g.Resolve(ctx, key.RecordID(), idempotent.ResolvedWithoutResult())
		idempotent.Do(ctx, g, key, text("done"))
	}),
	{"NotStored", "the store fails", memory, func(p *procedure) { p.queryLines(notStored(p.t, "InternalServerError", "down"), "InternalServerError") }},
	{"NotStored", "the result is too large", memory, func(p *procedure) {
		p.queryLines(notStored(p.t, "ValidationException", "Item size to update has exceeded the maximum allowed size"), "larger than the store can hold")
	}},
	{"Late", "the outcome was stored", memory, func(p *procedure) {
		p.queryLines(late(p.t, idempotent.Reconcile), "event=late_completion")
	}},
	{"Late", "another run took over", memory, func(p *procedure) { p.queryLines(late(p.t, idempotent.Rerun), "event=lease_lost") }},
}

// play makes requests to a guard.
type play func(context.Context, *idempotent.Guard, idempotent.Key)

// played is a cause that is produced in this process. The query has to find want.
func played(alarm, why, want string, do play, optFns ...func(*idempotent.Options)) cause {
	return cause{alarm, why, memory, func(p *procedure) { p.t.Helper(); p.queryLines(logged(p.t, do, optFns...), want) }}
}

// once makes one request.
func once(handler func(context.Context) (string, error)) play {
	return func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(ctx, g, key, handler)
	}
}

func fails(err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "", err }
}

func text(s string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return s, nil }
}

// readsAnotherType stores a result, and repeats the request with a handler of another
// type.
func readsAnotherType(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
	idempotent.Do(ctx, g, key, text("done"))
	idempotent.Do(ctx, g, key, func(context.Context) (int, error) { return 1, nil })
}

// logged returns what a guard logs in a function.
func logged(t *testing.T, do play, optFns ...func(*idempotent.Options)) []string {
	t.Helper()
	store, err := dynamostore.New(dynamotest.New("once"), "once")
	if err != nil {
		t.Fatal(err)
	}
	return loggedOn(t, store, do, optFns...)
}

func loggedOn(t *testing.T, store driver.Store, do play, optFns ...func(*idempotent.Options)) []string {
	t.Helper()
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	guard, err := idempotent.New(store, append(optFns, func(o *idempotent.Options) { o.Logger, o.Observer = logger, event.LogObserver(logger) })...)
	if err != nil {
		t.Fatal(err)
	}
	do(t.Context(), guard, idempotent.Key{Operation: "op", Scope: "test", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)})
	return strings.Split(out.String(), "\n")
}

// notStored returns what is logged if every write after the claim fails.
func notStored(t *testing.T, code, message string) []string {
	t.Helper()
	writes := 0
	db := dynamotest.Intercept(dynamotest.New("once"), func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "PutItem" {
			writes++
		}
		if writes > 1 {
			c.Err = &smithy.GenericAPIError{Code: code, Message: message}
			return
		}
		c.Do(ctx)
	})
	store, err := dynamostore.New(db, "once")
	if err != nil {
		t.Fatal(err)
	}
	return loggedOn(t, store, once(text("done")))
}

// late returns what is logged if a handler outlives its lease, and a second request
// comes before its end.
func late(t *testing.T, recovery idempotent.Recovery) []string {
	t.Helper()
	clock := &idempotenttest.Clock{}
	return logged(t, func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) {
		idempotent.Do(clock.Invocation(ctx, 10*time.Second), g, key, func(context.Context) (string, error) {
			clock.Advance(time.Minute)
			idempotent.Do(clock.Invocation(ctx, 10*time.Second), g, key, text("done"))
			return "done", nil
		})
	}, func(o *idempotent.Options) { o.Now, o.Recovery = clock.Now, recovery })
}

// inJSON are the variables of functions that log in JSON, which LocalStack does not
// set.
func inJSON(env map[string]string) map[string]string {
	all := map[string]string{"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": "DEBUG"}
	maps.Copy(all, env)
	return all
}

// charging creates a function that takes charges as the stack's does, with other
// variables.
func charging(t *testing.T, env map[string]string) stubborn {
	t.Helper()
	s := stubborn{"charging-" + strings.ToLower(rand.Text()), kill, env["ONCE_TABLE"], charge.Operation}
	stack.create(t, s.name, chargeArchive, slowest, inJSON(env))
	return s
}

// function is a function and a call of it that produces a cause. On a busy machine a call
// can fail for want of time before it does, and then another one follows.
type function struct {
	name string
	call func()
}

// failing returns a function with these variables, whose requests get an error.
func failing(t *testing.T, env map[string]string) function {
	t.Helper()
	s := charging(t, env)
	return function{s.name, func() {
		if r, killed := s.post(t, rand.Text(), aCharge(newCustomer())); !killed && r.status != http.StatusServiceUnavailable {
			t.Errorf("got %v, want 503", r)
		}
	}}
}

// reconciling creates a reconciler as the stack's, on another table.
func reconciling(t *testing.T, table string, env map[string]string) function {
	t.Helper()
	all := inJSON(env)
	all["ONCE_TABLE"] = table
	all["ONCE_EXHAUSTED_QUEUE_URL"] = stack.configuration(t, stack.reconciler).Environment.Variables["ONCE_EXHAUSTED_QUEUE_URL"]
	name := "reconciling-" + strings.ToLower(rand.Text())
	stack.create(t, name, reconcilerArchive, slowest, all)
	return function{name, func() { stack.invoke(t, name, []byte("{}")) }}
}

// failing is the same function, whose calls have to return an error.
func (f function) failing(t *testing.T) function {
	return function{f.name, func() {
		if _, failure := stack.invoke(t, f.name, []byte("{}")); failure == "" {
			t.Error("the reconciler returned no error")
		}
	}}
}

// working is the same function, whose calls end when one returns no error.
func (f function) working(t *testing.T) function {
	return function{f.name, func() {
		kit.Eventually(t, "the reconciler returns no error", func() bool {
			_, failure := stack.invoke(t, f.name, []byte("{}"))
			return failure == ""
		})
	}}
}

// due is the same function, which finds a record of an operation due at each call.
func (f function) due(t *testing.T, table, operation string) function {
	return function{f.name, func() { insertDue(t, table, operation); f.call() }}
}

// afterKill returns a function that got requests while a killed run had its lease, and
// after that.
func afterKill(t *testing.T) function {
	t.Helper()
	customer, name := newCustomer(), newTable(t)
	killed := newStubborn(t, kill, map[string]string{"RECOVERY": "reconcile", "OPERATION": charge.Operation, "ONCE_TABLE": name})
	key := rand.Text()
	next := charging(t, map[string]string{"ONCE_TABLE": name})
	killed.wantKilled(t, key, aCharge(customer))
	r, _ := next.afterLease(t, key, aCharge(customer))
	wantProblem(t, r, http.StatusConflict, "outcome-unknown")
	return function{next.name, func() { next.post(t, key, aCharge(customer)) }}
}

// refuse returns the address of a DynamoDB that refuses an operation with an error.
func refuse(t *testing.T, operation, code string) string {
	t.Helper()
	target, err := url.Parse(stack.cdk.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+operation) {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"refused"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// newTable returns the name of a new table.
func newTable(t *testing.T) string {
	t.Helper()
	name := "runbook-" + strings.ToLower(rand.Text())
	if err := storeOf(t, name).CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return name
}

func storeOf(t *testing.T, table string) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(stack.dynamodb, table)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// insert writes a record of an operation.
func insert(t *testing.T, table, operation string, r driver.Record) {
	t.Helper()
	r.ID = idempotent.Key{Operation: operation, Scope: "test", ID: rand.Text()}.RecordID()
	r.Attempt, r.Created, r.Since = 1, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
	if met, err := storeOf(t, table).Insert(t.Context(), r, time.Now()); err != nil || met != nil {
		t.Fatal(met, err)
	}
}

// insertDue writes a record with an unknown outcome that is due.
func insertDue(t *testing.T, table, operation string) {
	t.Helper()
	insert(t, table, operation, driver.Record{State: driver.StateUnknown, Reason: driver.ReasonUnknown, LeaseEnd: time.Now().Add(-time.Hour), Due: time.Now().Add(-time.Minute)})
}
