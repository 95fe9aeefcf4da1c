// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/lambdabatch"
)

// bank is a provider that counts its charges. With keys, a repeated key gets the first
// answer, for as long as the bank remembers it. Without keys, a charge has a reference.
type bank struct {
	mu       sync.Mutex
	noKeys   bool
	memory   time.Duration // default: without limit
	charges  int
	requests int // to charge
	byKey    map[string]string
	at       map[string]time.Time
	orders   map[string]int // charges
}

// charged returns a count of the charges of one order.
func (b *bank) charged(id string) func() int {
	return func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.orders[id]
	}
}

func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges
}

func (b *bank) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := cmp.Or(r.Header.Get("Idempotency-Key"), r.Header.Get("Reference"))
	if b.byKey == nil {
		b.byKey, b.at, b.orders = map[string]string{}, map[string]time.Time{}, map[string]int{}
	}
	id, known := b.byKey[key]
	if r.Method == http.MethodGet {
		if id = b.byKey[r.URL.Query().Get("key")]; id == "" {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		json.NewEncoder(rw).Encode(charge{id})
		return
	}
	b.requests++
	if !known || b.noKeys || b.memory > 0 && time.Since(b.at[key]) > b.memory {
		var body struct{ Order string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		b.charges++
		b.orders[body.Order]++
		id = fmt.Sprint("ch_", b.charges)
		b.byKey[key], b.at[key] = id, time.Now()
	}
	rw.WriteHeader(http.StatusCreated)
	json.NewEncoder(rw).Encode(charge{id})
}

type charge struct{ ID string }

// post asks the bank to charge an order, with the key in that header.
func post(ctx context.Context, id, header, key string) (c charge, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bank.test/charges", strings.NewReader(`{"order":"`+id+`"}`))
	if err != nil {
		return c, err
	}
	req.Header.Set(header, key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return c, fmt.Errorf("the bank answered %s", answer.Status)
	}
	return c, json.NewDecoder(answer.Body).Decode(&c)
}

type handler = func(context.Context, string) (charge, error)

func guarded(recovery idempotent.Recovery, f handler, optFns ...func(*idempotent.Operation)) func(*idempotent.Guard) handler {
	return func(g *idempotent.Guard) handler {
		return idempotent.Wrap(g, idempotent.KeyFrom("charge", func(id string) (string, string) { return "acme", id }), f,
			append([]func(*idempotent.Operation){func(o *idempotent.Operation) {
				if o.Recovery = recovery; recovery == idempotent.Resume {
					o.Steps = []string{"charge", "charge-1", "charge-2", "charge-3", "charge-4", "charge-5"}
				}
			}}, optFns...)...)
	}
}

// pay is for a bank with keys.
func pay(ctx context.Context, _ string) (charge, error) {
	return post(ctx, "1", "Idempotency-Key", idempotent.DownstreamKey(ctx))
}

// refer is for a bank without keys: net/http itself would repeat a request with one.
func refer(ctx context.Context, _ string) (charge, error) {
	return post(ctx, "1", "Reference", idempotent.DownstreamKey(ctx))
}

// resolves adds a reconciler that asks f about each charge.
func resolves(w *idempotenttest.World, f idempotent.ResolveFunc) {
	w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
		return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": f})
	})
}

// asks is a resolver that asks the bank.
func asks(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bank.test/charges?key="+r.ID.DownstreamKey(), nil)
	if err != nil {
		return idempotent.Resolution{}, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return idempotent.Resolution{}, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return idempotent.ProvenNotExecuted(r.Token), nil
	case http.StatusOK:
		var c charge
		err := json.NewDecoder(answer.Body).Decode(&c)
		return idempotent.Resolved(c), err
	}
	return idempotent.Resolution{}, fmt.Errorf("the bank answered %s", answer.Status)
}

// failing returns another error than that of a charge.
func failing(as func(error) error) handler {
	return func(ctx context.Context, s string) (charge, error) {
		c, err := refer(ctx, s)
		if err != nil {
			return c, as(err)
		}
		return c, nil
	}
}

// inStep makes a charge in a step.
func inStep(f handler, optFns ...func(*idempotent.StepOptions)) handler {
	return func(ctx context.Context, s string) (charge, error) {
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (charge, error) { return f(ctx, s) }, optFns...)
	}
}

// counting sends another key with each charge of a world.
func counting() handler {
	n := 0
	return func(ctx context.Context, _ string) (charge, error) {
		n++
		return post(ctx, "1", "Idempotency-Key", fmt.Sprint("key-", n))
	}
}

// wrong are handlers with one mistake each.
var wrong = map[string]func(w *idempotenttest.World){
	"NotExecuted after sending": handling(idempotent.Reconcile, keyless, false, failing(idempotent.NotExecuted)),
	"an effect outside a step":  handling(idempotent.Resume, keyless, false, refer),
	"no downstream key under Rerun": func(w *idempotenttest.World) {
		handles(w, idempotent.Rerun, &bank{}, true, counting())
	},
	"no downstream key under Resume": func(w *idempotenttest.World) {
		handles(w, idempotent.Resume, &bank{}, true, inStep(counting()))
	},
	"another key": handling(idempotent.Rerun, honest, true, func(ctx context.Context, _ string) (charge, error) {
		e, _ := idempotent.FromContext(ctx)
		return post(ctx, "1", "Idempotency-Key", fmt.Sprint(idempotent.DownstreamKey(ctx), "-", e.Attempt()))
	}),
	"another context": handling(idempotent.Reconcile, keyless, true, func(ctx context.Context, _ string) (charge, error) {
		return post(context.Background(), "1", "Reference", idempotent.DownstreamKey(ctx))
	}),
	"AtMostOnce forgotten": handling(idempotent.Resume, keyless, false, inStep(refer)),
	"a row without a unique column": func(w *idempotenttest.World) {
		inserts(w, func(ctx context.Context, db *sql.DB, id string) error {
			_, err := db.ExecContext(ctx, "INSERT INTO charges VALUES (?)", id)
			return err
		})
	},
	"a key for a provider without keys": handling(idempotent.Reconcile, keyless, false, pay),
	"a provider that forgets keys":      handling(idempotent.Rerun, forgetful, true, pay),
	"a short retention":                 handling(idempotent.Reconcile, keyless, false, refer, func(o *idempotent.Operation) { o.Retention = time.Hour }),
	"an amount that is not in the fingerprint": func(w *idempotenttest.World) {
		amounts(w, func(_ context.Context, o order) (idempotent.Key, error) {
			return idempotent.Key{Operation: "charge", Scope: "acme", ID: o.ID, Fingerprint: idempotent.FingerprintBytes([]byte(o.ID))}, nil
		})
	},
	"no resolver": handling(idempotent.Reconcile, keyless, true, refer),
	"proven too early": func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, refer)
		resolves(w, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.ProvenNotExecuted(r.Token), nil
		})
	},
	"an effect outside every point": func(w *idempotenttest.World) {
		b := &bank{}
		handles(w, idempotent.Rerun, b, true, func(ctx context.Context, s string) (charge, error) {
			b.mu.Lock()
			b.charges++
			b.mu.Unlock()
			return charge{"ch_1"}, nil
		})
	},
	"a broken invariant": func(w *idempotenttest.World) {
		b := &bank{noKeys: true}
		w.Check("charges", func() error {
			if n := b.count(); n > 1 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		repeats(w, b)
	},
	"a resolver with another value": func(w *idempotenttest.World) {
		b := &bank{noKeys: true}
		handles(w, idempotent.Reconcile, b, true, refer)
		resolves(w, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if b.byKey[r.ID.DownstreamKey()] == "" {
				return idempotent.ProvenNotExecuted(r.Token), nil
			}
			return idempotent.Resolved(charge{"settled"}), nil
		})
	},
	"a step name that changes": func(w *idempotenttest.World) {
		n := 0
		handles(w, idempotent.Resume, &bank{}, true, func(ctx context.Context, s string) (charge, error) {
			n++
			return idempotent.Step(ctx, fmt.Sprint("charge-", n), func(ctx context.Context) (charge, error) { return pay(ctx, s) })
		})
	},
	"a goroutine that goes on": handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (charge, error) {
		go pay(ctx, s)
		return charge{"ch_1"}, nil
	}),
	"an ignored error of Commit": func(w *idempotenttest.World) {
		ordering(w, func(ctx context.Context, _ dynamostore.Client, id string) (string, error) {
			_ = dynamostore.Commit(ctx, id, put("orders", id))
			return id, nil
		})
	},
	"a write beside the Commit": func(w *idempotenttest.World) {
		ordering(w, func(ctx context.Context, db dynamostore.Client, id string) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			order := put("orders", fmt.Sprint(id, "-", e.Attempt())).Put
			if _, err := db.PutItem(ctx, &dynamodb.PutItemInput{TableName: order.TableName, Item: order.Item}); err != nil {
				return "", err
			}
			return id, dynamostore.Commit(ctx, id, put("log", id))
		})
	},
	"Final for a temporary failure": func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, failing(func(error) error { return idempotent.Final("failed", "the bank failed") }))
		resolves(w, asks)
	},
}

// ordering adds a handler that writes an order into DynamoDB.
func ordering(w *idempotenttest.World, f func(ctx context.Context, db dynamostore.Client, id string) (string, error)) {
	db := dynamotest.In(w, "once", []string{"orders", "log"})
	w.ExactlyOnce("order", func() int {
		out, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("orders")})
		if err != nil {
			panic(err)
		}
		return len(out.Items)
	})
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) func(context.Context, string) (string, error) {
		key := idempotent.KeyFrom("order", func(id string) (string, string) { return "acme", id })
		return idempotent.Wrap(g, key, func(ctx context.Context, id string) (string, error) {
			return f(ctx, db, id)
		}, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
	})
}

func put(table, id string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}}}
}

type order struct{ ID, Amount string }

// amounts adds a handler of orders with key. Another order has the same ID.
func amounts(w *idempotenttest.World, key idempotent.KeyFunc[order]) {
	b := &bank{}
	w.Provider(b)
	w.ExactlyOnce("charge", b.count)
	idempotenttest.Handle(w, order{"1", "10"}, func(g *idempotent.Guard) func(context.Context, order) (charge, error) {
		return idempotent.Wrap(g, key, func(ctx context.Context, o order) (charge, error) { return pay(ctx, o.ID) },
			func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
	}, order{"1", "99"})
}

// repeats adds a handler that charges again in each run.
func repeats(w *idempotenttest.World, b *bank) {
	w.Provider(b)
	w.AtLeastOnce("charge", b.count)
	idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, refer))
}

func honest() *bank    { return &bank{} }
func keyless() *bank   { return &bank{noKeys: true} }
func forgetful() *bank { return &bank{memory: 30 * time.Second} }

// handling adds a handler to each world, with a new bank.
func handling(recovery idempotent.Recovery, newBank func() *bank, exactly bool, f handler,
	optFns ...func(*idempotent.Operation)) func(*idempotenttest.World) {
	return func(w *idempotenttest.World) { handles(w, recovery, newBank(), exactly, f, optFns...) }
}

func handles(w *idempotenttest.World, recovery idempotent.Recovery, b *bank, exactly bool, f handler, optFns ...func(*idempotent.Operation)) {
	w.Provider(b)
	if exactly {
		w.ExactlyOnce("charge", b.count)
	} else {
		w.AtMostOnce("charge", b.count)
	}
	idempotenttest.Handle(w, "order-1", guarded(recovery, f, optFns...))
}

// right are handlers without a mistake, and what their schedules have to show.
var right = map[string]struct {
	body  func(w *idempotenttest.World)
	facts []event.Kind
}{
	"at most once under Reconcile": {handling(idempotent.Reconcile, keyless, false, refer), []event.Kind{event.MarkedUnknown, event.Unresolved, event.InProgress, event.Replayed}},
	"resolved under Reconcile": {func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, refer)
		resolves(w, asks)
	}, []event.Kind{event.Resolved, event.TakenOver, event.ReconcileFailed}},
	"Rerun with a key": {handling(idempotent.Rerun, honest, true, pay), []event.Kind{event.TakenOver}},
	"another amount": {func(w *idempotenttest.World) {
		amounts(w, idempotent.KeyFrom("charge", func(o order) (string, string) { return "acme", o.ID }))
	}, []event.Kind{event.TakenOver, event.Mismatch}},
	"a batch of two": {func(w *idempotenttest.World) {
		twoCharges(w)
		batch := events.SQSEvent{Records: []events.SQSMessage{
			{MessageId: "m-1", Body: `{"ID":"1"}`, EventSource: "aws:sqs", EventSourceARN: queueARN},
			{MessageId: "m-2", Body: `{"ID":"2"}`, EventSource: "aws:sqs", EventSourceARN: queueARN},
		}}
		idempotenttest.Handle(w, batch, func(g *idempotent.Guard) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
			return lambdabatch.SQS(g, chargeOrder, atOnce)
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a stream": {func(w *idempotenttest.World) {
		twoCharges(w)
		batch := events.KinesisEvent{Records: []events.KinesisEventRecord{
			{EventID: "shard-0:1", EventSourceArn: streamARN, Kinesis: events.KinesisRecord{SequenceNumber: "1", PartitionKey: "a", Data: []byte(`{"ID":"1"}`)}},
			{EventID: "shard-0:2", EventSourceArn: streamARN, Kinesis: events.KinesisRecord{SequenceNumber: "2", PartitionKey: "b", Data: []byte(`{"ID":"2"}`)}},
		}}
		idempotenttest.Handle(w, batch, func(g *idempotent.Guard) func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error) {
			return lambdabatch.Kinesis(g, chargeOrder, atOnce)
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a predecessor": {func(w *idempotenttest.World) {
		handles(w, idempotent.Rerun, &bank{charges: 1}, true, pay, func(o *idempotent.Operation) { // charged by the earlier program
			o.Predecessor = func(ctx context.Context, _ idempotent.Key) (result any, found bool, err error) {
				return charge{"ch_1"}, true, w.Do(ctx, "the earlier table", func() error { return nil })
			}
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a database": {func(w *idempotenttest.World) {
		inserts(w, func(ctx context.Context, db *sql.DB, id string) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM charges WHERE id = ?", id).Scan(&n); err != nil || n > 0 {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES (?)", id); err != nil {
				return err
			}
			return tx.Commit()
		})
	}, []event.Kind{event.TakenOver}},
	"at least once": {func(w *idempotenttest.World) {
		repeats(w, &bank{noKeys: true})
	}, []event.Kind{event.TakenOver}},
	"another effect": {func(w *idempotenttest.World) {
		mails := map[string]bool{}
		w.ExactlyOnce("mail", func() int { return len(mails) })
		w.Process(func(p *idempotenttest.Process) func(context.Context) (any, error) {
			return func(ctx context.Context) (any, error) {
				return idempotent.Do(ctx, p.Guard, idempotent.Key{Operation: "mail", Scope: "acme", ID: "1", Fingerprint: idempotent.FingerprintBytes([]byte("x"))}, func(ctx context.Context) (string, error) {
					return "sent", w.Do(ctx, "mail", func() error {
						mails[idempotent.DownstreamKey(ctx)] = true
						return nil
					})
				}, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
			}
		})
	}, []event.Kind{event.TakenOver, event.Retryable}},
	"steps with keys": {handling(idempotent.Resume, honest, true, twice), []event.Kind{event.TakenOver, event.StepReplayed}},
	"a Commit": {func(w *idempotenttest.World) {
		ordering(w, func(ctx context.Context, _ dynamostore.Client, id string) (string, error) {
			return id, dynamostore.Commit(ctx, id, put("orders", id))
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a step without keys": {handling(idempotent.Resume, keyless, false, inStep(refer, func(o *idempotent.StepOptions) { o.AtMostOnce = true })), []event.Kind{event.MarkedUnknown, event.StepReplayed}},
}

const (
	queueARN  = "arn:aws:sqs:eu-west-1:123456789012:orders"
	streamARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
)

// atOnce handles two messages at a time.
func atOnce(o *lambdabatch.Options) {
	o.Operation, o.ID, o.Concurrency = "charge", lambdabatch.Field("/ID"), 2
	o.Guard = func(g *idempotent.Operation) { g.Recovery = idempotent.Rerun }
}

func twoCharges(w *idempotenttest.World) {
	b := &bank{}
	w.Provider(b)
	w.ExactlyOnce("charge 1", b.charged("1"))
	w.ExactlyOnce("charge 2", b.charged("2"))
}

func chargeOrder(ctx context.Context, o order) error {
	_, err := post(ctx, o.ID, "Idempotency-Key", idempotent.DownstreamKey(ctx))
	return err
}

// inserts adds a handler that writes a row.
func inserts(w *idempotenttest.World, f func(ctx context.Context, db *sql.DB, id string) error) {
	rows := &table{}
	w.ExactlyOnce("row", func() int { return len(rows.ids) })
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) func(context.Context, string) (string, error) {
		db := sql.OpenDB(w.Connector(rows))
		key := idempotent.KeyFrom("charge", func(id string) (string, string) { return "acme", id })
		return idempotent.Wrap(g, key, func(ctx context.Context, id string) (string, error) {
			return id, f(ctx, db, idempotent.DownstreamKey(ctx))
		}, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
	})
}

// twice makes a charge after another step.
func twice(ctx context.Context, s string) (charge, error) {
	if _, err := idempotent.Step(ctx, "charge-1", func(context.Context) (int, error) { return 1, nil }); err != nil {
		return charge{}, err
	}
	return inStep(refer)(ctx, s)
}

// table is a database with one table, for [database/sql.OpenDB]. It knows INSERT, and counts
// the rows with an ID. A transaction adds its rows when it commits.
type table struct{ ids []string }

func (t *table) Connect(context.Context) (driver.Conn, error) { return &session{table: t}, nil }
func (t *table) Driver() driver.Driver                        { return nil }

// session is a connection.
type session struct {
	table *table
	open  bool // a transaction is
	added []string
}

func (s *session) Prepare(query string) (driver.Stmt, error) { return statement{s, query}, nil }
func (s *session) Close() error                              { return nil }

func (s *session) Begin() (driver.Tx, error) {
	s.open = true
	return s, nil
}

func (s *session) Commit() error {
	if !s.open {
		return errors.New("no transaction")
	}
	s.table.ids, s.added, s.open = append(s.table.ids, s.added...), nil, false
	return nil
}

func (s *session) Rollback() error {
	s.added, s.open = nil, false
	return nil
}

type statement struct {
	session *session
	query   string
}

func (s statement) Close() error  { return nil }
func (s statement) NumInput() int { return strings.Count(s.query, "?") }

func (s statement) Exec(args []driver.Value) (driver.Result, error) {
	t := s.session
	t.added = append(t.added, args[0].(string))
	if !t.open {
		t.open = true
		return driver.RowsAffected(1), t.Commit()
	}
	return driver.RowsAffected(1), nil
}

func (s statement) Query(args []driver.Value) (driver.Rows, error) {
	n := 0
	for _, id := range slices.Concat(s.session.table.ids, s.session.added) {
		if id == args[0] {
			n++
		}
	}
	return &counted{n: int64(n)}, nil
}

// counted is one row with a count.
type counted struct {
	n    int64
	read bool
}

func (c *counted) Columns() []string { return []string{"count"} }
func (c *counted) Close() error      { return nil }

func (c *counted) Next(row []driver.Value) error {
	if c.read {
		return io.EOF
	}
	row[0], c.read = c.n, true
	return nil
}
