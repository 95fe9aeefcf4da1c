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
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"path"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
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
	"github.com/once-lambda/once/lambdahttp"
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
	if b.at == nil {
		b.at, b.orders = map[string]time.Time{}, map[string]int{}
	}
	if b.byKey == nil {
		b.byKey = map[string]string{}
	}
	id, known := b.byKey[key]
	switch r.Method {
	case http.MethodGet:
		if id = b.byKey[r.URL.Query().Get("key")]; id == "" {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		json.NewEncoder(rw).Encode(charge{id})
		return
	case http.MethodDelete:
		if known {
			b.charges--
			delete(b.byKey, key)
		}
		rw.WriteHeader(http.StatusNoContent)
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

// statusError is an answer of the bank that is no success.
type statusError int

func (e statusError) Error() string { return fmt.Sprint("the bank answered ", int(e)) }

// send asks a bank, and returns its reply, whose status is a success.
func send(ctx context.Context, client *http.Client, method, url, body, header, key string) (*http.Response, error) {
	var content io.Reader // of a GET: nil
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set(header, key)
	answer, err := client.Do(req)
	if err == nil && answer.StatusCode >= 300 {
		answer.Body.Close()
		return nil, statusError(answer.StatusCode)
	}
	return answer, err
}

const charges = "http://bank.test/charges"

func orderOf(id string) string { return `{"order":"` + id + `"}` }

// post asks the bank to charge an order, with the key in that header.
func post(ctx context.Context, id, header, key string) (charge, error) {
	return read(send(ctx, http.DefaultClient, http.MethodPost, charges, orderOf(id), header, key))
}

// read returns the charge in a reply.
func read(answer *http.Response, err error) (c charge, _ error) {
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	return c, json.NewDecoder(answer.Body).Decode(&c)
}

// find asks the bank for the charge with a key.
func find(ctx context.Context, key string) (charge, error) {
	return read(send(ctx, http.DefaultClient, http.MethodGet, charges+"?key="+key, "", "Accept", "application/json"))
}

type handler = func(context.Context, string) (charge, error)

func guarded(recovery idempotent.Recovery, f handler, optFns ...func(*idempotent.Operation)) func(*idempotent.Guard) handler {
	return func(g *idempotent.Guard) handler {
		return idempotent.Wrap(g, idempotent.KeyFrom("charge", func(id string) (string, string) { return "acme", id }), f,
			append([]func(*idempotent.Operation){recovering(recovery)}, optFns...)...)
	}
}

func recovering(recovery idempotent.Recovery) func(*idempotent.Operation) {
	return func(o *idempotent.Operation) {
		if o.Recovery = recovery; recovery == idempotent.Resume {
			o.Steps = []string{"charge", "charge-1", "charge-2", "charge-3", "charge-4", "charge-5"}
		}
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
	switch c, err := find(ctx, r.ID.DownstreamKey()); {
	case err == statusError(http.StatusNotFound):
		return idempotent.ProvenNotExecuted(r.Token), nil
	case err != nil:
		return idempotent.Resolution{}, err
	default:
		return idempotent.Resolved(c), nil
	}
}

// failing returns another error than that of a charge.
func failing(as func(error) error) handler { return impatient(0, as) }

// impatient is failing with a time-out of the client.
func impatient(timeout time.Duration, as func(error) error) handler {
	return func(ctx context.Context, _ string) (charge, error) {
		c, err := read(send(ctx, &http.Client{Timeout: timeout}, http.MethodPost, charges, orderOf("1"), "Reference", idempotent.DownstreamKey(ctx)))
		if err != nil {
			err = as(err)
		}
		return c, err
	}
}

// when returns another error than those that match.
func when(matches func(error) bool, as func(error) error) func(error) error {
	return func(err error) error {
		if matches(err) {
			return as(err)
		}
		return err
	}
}

func timedOut(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout()
}
func isCut(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }
func serverError(err error) bool {
	var status statusError
	return errors.As(err, &status) && status >= 500
}

// What becomes of an error.
func none(error) error        { return nil }
func refused(err error) error { return idempotent.Final("failed", err.Error()) }

func once(o *idempotent.StepOptions) { o.AtMostOnce = true }

// hasID checks that a success has the id of a charge.
func hasID(w *idempotenttest.World) {
	w.Success(func(answer any) error {
		if answer.(charge).ID == "" {
			return errors.New("the charge has no id")
		}
		return nil
	})
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

// wrong are handlers with one mistake each, the faults that show it, and the rule that they
// break. No two of those with faults have the same ones and the same rule.
var wrong = map[string]struct {
	faults, rule string
	body         func(w *idempotenttest.World)
}{
	"NotExecuted after sending": {"", "Return NotExecuted only if", handling(idempotent.Reconcile, keyless, false, failing(idempotent.NotExecuted))},
	"an effect outside a step":  {"", "Under Resume, put every effect in a Step", handling(idempotent.Resume, keyless, false, refer)},
	"a mail outside a step": {"", "Under Resume, put every effect in a Step", func(w *idempotenttest.World) {
		effecting(w, "mail", idempotent.Resume, func(ctx context.Context, mail func(context.Context) error) error { return mail(ctx) })
	}},
	"no downstream key under Rerun": {"", "Send the same key", func(w *idempotenttest.World) {
		handles(w, idempotent.Rerun, &bank{}, true, counting())
	}},
	"no downstream key under Resume": {"", "Send the same key", func(w *idempotenttest.World) {
		handles(w, idempotent.Resume, &bank{}, true, inStep(counting()))
	}},
	"another key": {"", "Send the same key", handling(idempotent.Rerun, honest, true, func(ctx context.Context, _ string) (charge, error) {
		e, _ := idempotent.FromContext(ctx)
		return post(ctx, "1", "Idempotency-Key", fmt.Sprint(idempotent.DownstreamKey(ctx), "-", e.Attempt()))
	})},
	"another context": {"", "Pass the handler's context", handling(idempotent.Reconcile, keyless, true, func(ctx context.Context, _ string) (charge, error) {
		return post(context.Background(), "1", "Reference", idempotent.DownstreamKey(ctx))
	})},
	"AtMostOnce forgotten": {"", "The provider has repeated", handling(idempotent.Resume, keyless, false, func(ctx context.Context, s string) (charge, error) {
		if _, err := find(ctx, "order-1"); err != nil && err != statusError(http.StatusNotFound) { // needs no step
			return charge{}, err
		}
		return inStep(refer)(ctx, s)
	})},
	"a row without a unique column": {"", "A run after a fault repeats", func(w *idempotenttest.World) {
		inserts(w, func(ctx context.Context, db *sql.DB, id string) error {
			_, err := db.ExecContext(ctx, "INSERT INTO charges VALUES (?)", id)
			return err
		})
	}},
	"a key for a provider without keys": {"", "net/http repeats", handling(idempotent.Reconcile, keyless, false, pay)},
	"a provider that forgets keys":      {"", "The provider has repeated", handling(idempotent.Rerun, forgetful, true, pay)},
	"a UUID for a provider without keys": {"", "The provider has repeated", handling(idempotent.Rerun, keyless, true, func(ctx context.Context, _ string) (charge, error) {
		return post(ctx, "1", "Reference", idempotent.AsUUID(idempotent.DownstreamKey(ctx)))
	})},
	"a key in the body, for a provider without keys": {"", "The provider has repeated", handling(idempotent.Rerun, keyless, true, func(ctx context.Context, _ string) (charge, error) {
		body := `{"order":"1","key":"` + idempotent.DownstreamKey(ctx) + `"}`
		return read(send(ctx, http.DefaultClient, http.MethodPost, charges, body, "Accept", "application/json"))
	})},
	"a short retention": {"", "Keep a record longer", handling(idempotent.Reconcile, keyless, false, refer, func(o *idempotent.Operation) { o.Retention = time.Hour })},
	"an amount that is not in the fingerprint": {"", "Let the fingerprint", func(w *idempotenttest.World) {
		amounts(w, func(_ context.Context, o order) (idempotent.Key, error) {
			return idempotent.Key{Operation: "charge", Scope: "acme", ID: o.ID, Fingerprint: idempotent.FingerprintBytes([]byte(o.ID))}, nil
		})
	}},
	"no resolver": {"", "Under Reconcile only evidence", handling(idempotent.Reconcile, keyless, true, refer)},
	"proven too early": {"", "Answer ProvenNotExecuted only if", func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, refer)
		resolves(w, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.ProvenNotExecuted(r.Token), nil
		})
	}},
	"an effect outside every point": {"", "Explore can only crash", func(w *idempotenttest.World) {
		b := &bank{}
		handles(w, idempotent.Rerun, b, true, func(ctx context.Context, s string) (charge, error) {
			b.mu.Lock()
			b.charges++
			b.mu.Unlock()
			return charge{"ch_1"}, nil
		})
	}},
	"an effect after a pause": {"none", "Explore can only crash", func(w *idempotenttest.World) {
		b := &bank{}
		handles(w, idempotent.Rerun, b, true, func(ctx context.Context, s string) (charge, error) {
			<-time.After(time.Second) // of the explorer's clock
			b.mu.Lock()
			b.charges++
			b.mu.Unlock()
			return pay(ctx, s)
		})
	}},
	"an effect before the guard": {"", "Send idempotent.DownstreamKey(ctx) with", func(w *idempotenttest.World) {
		b := keyless()
		w.Provider(b)
		w.AtMostOnce("charge", b.count)
		idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) handler {
			h := guarded(idempotent.Rerun, func(context.Context, string) (charge, error) { return charge{"ch_1"}, nil })(g)
			return func(ctx context.Context, s string) (charge, error) {
				if c, err := post(ctx, "1", "Reference", s); err != nil {
					return c, err
				}
				return h(ctx, s)
			}
		})
	}},
	"a handler that never answers": {"none", "Return as soon as the handler's context ends", handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (charge, error) {
		c, _ := pay(ctx, s)
		<-time.After(time.Minute)
		return c, nil
	})},
	"a broken invariant": {"", "The provider has repeated", func(w *idempotenttest.World) {
		b := &bank{noKeys: true}
		w.Check("charges", func() error {
			if n := b.count(); n > 1 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		repeats(w, b)
	}},
	"a resolver with another value": {"", "Let the resolver return", func(w *idempotenttest.World) {
		b := &bank{noKeys: true}
		handles(w, idempotent.Reconcile, b, true, refer)
		resolves(w, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if b.byKey[r.ID.DownstreamKey()] == "" {
				return idempotent.ProvenNotExecuted(r.Token), nil
			}
			return idempotent.Resolved(charge{"settled"}), nil
		})
	}},
	"a step name that changes": {"", "Name a step by a constant", func(w *idempotenttest.World) {
		n := 0
		handles(w, idempotent.Resume, &bank{}, true, func(ctx context.Context, s string) (charge, error) {
			n++
			return idempotent.Step(ctx, fmt.Sprint("charge-", n), func(ctx context.Context) (charge, error) { return pay(ctx, s) })
		})
	}},
	"a goroutine that goes on": {"", "Wait for every goroutine", handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (charge, error) {
		go pay(ctx, s)
		return charge{"ch_1"}, nil
	})},
	"an ignored error of Commit": {"", "Return the error of every call", func(w *idempotenttest.World) {
		ordering(w, func(ctx context.Context, _ dynamostore.Client, id string) (string, error) {
			_ = dynamostore.Commit(ctx, id, put("orders", id))
			return id, nil
		})
	}},
	"a write beside the Commit": {"", "Put every write into", func(w *idempotenttest.World) {
		ordering(w, func(ctx context.Context, db dynamostore.Client, id string) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			order := put("orders", fmt.Sprint(id, "-", e.Attempt())).Put
			if _, err := db.PutItem(ctx, &dynamodb.PutItemInput{TableName: order.TableName, Item: order.Item}); err != nil {
				return "", err
			}
			return id, dynamostore.Commit(ctx, id, put("log", id))
		})
	}},
	"Final for a temporary failure": {"", "Return Final only for", func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, failing(refused))
		resolves(w, asks)
	}},
	"a time-out that is taken for a refusal":    {"hangs-after", "Return NotExecuted only if", handling(idempotent.Reconcile, keyless, false, failing(when(timedOut, idempotent.NotExecuted)))},
	"a 500 that is taken for a refusal":         {"500", "Return NotExecuted only if", handling(idempotent.Reconcile, keyless, false, failing(when(serverError, idempotent.NotExecuted)))},
	"an unreadable reply taken for a refusal":   {"cut-reply", "Return NotExecuted only if", handling(idempotent.Reconcile, keyless, false, failing(when(isCut, idempotent.NotExecuted)))},
	"a final answer for a 500":                  {"500", "Return Final only for", handling(idempotent.Reconcile, keyless, false, failing(when(serverError, refused)))},
	"a final answer after the client's timeout": {"hangs-after", "Return Final only for", handling(idempotent.Reconcile, keyless, false, impatient(5*time.Second, when(timedOut, refused)))},
	"a final answer for a 503": {"503", "Return Final only for", func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, keyless(), true, failing(when(func(err error) bool { return err == statusError(503) }, refused)))
		resolves(w, asks)
	}},
	"a panic that is taken for a refusal": {"panics", "Return NotExecuted only if", handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (_ charge, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = idempotent.NotExecuted(fmt.Errorf("panic: %v", p))
			}
		}()
		return refer(ctx, s)
	})},
	"NotExecuted after an INSERT": {"lost-reply", "Return NotExecuted only if", func(w *idempotenttest.World) {
		insertsBy(w, idempotent.Reconcile, func(ctx context.Context, db *sql.DB, id string) error {
			if _, err := db.ExecContext(ctx, "INSERT INTO charges VALUES (?)", id); err != nil {
				return idempotent.NotExecuted(err)
			}
			return nil
		})
	}},

	"an ended context that is taken for a success": {"hangs", "Return the error of every call", handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (charge, error) {
		c, err := refer(ctx, s)
		if ctx.Err() != nil {
			return c, nil
		}
		return c, err
	})},
	"a status that is not checked": {"503", "Return the error of every call", handling(idempotent.Reconcile, keyless, false, failing(when(func(err error) bool { return errors.As(err, new(statusError)) }, none)))},
	"a reset connection taken for a success": {"lost-request", "Return the error of every call", handling(idempotent.Reconcile, keyless, false,
		failing(when(func(err error) bool { return strings.Contains(err.Error(), "reset by peer") }, none)))},
	"an ignored error in a step": {"refused", "Return the error of every call", handling(idempotent.Resume, keyless, false, inStep(func(ctx context.Context, _ string) (charge, error) {
		c, _ := post(ctx, "1", "Reference", "order-1")
		return c, nil
	}, once))},
	"a reply that is not decoded": {"cut-reply", "Return the error of reading", func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, keyless(), false, failing(when(isCut, none)))
		hasID(w)
	}},
	"a call with a time-out of its own that is not waited for": {"hangs", "Wait for every goroutine", handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (charge, error) {
		done := make(chan error, 1)
		go func() {
			_, err := refer(ctx, s)
			done <- err
		}()
		select {
		case err := <-done:
			return charge{"ch_1"}, err
		case <-time.After(time.Second):
			return charge{"pending"}, nil
		}
	})},
	"one key for two steps at once": {"none", "Send the DownstreamKey of the step's own context", func(w *idempotenttest.World) {
		both(w, idempotent.Resume, honest(), func(ctx context.Context, id string) error {
			_, err := idempotent.Step(ctx, "charge-"+id, func(context.Context) (charge, error) {
				return post(ctx, id, "Idempotency-Key", idempotent.DownstreamKey(ctx))
			})
			return err
		})
	}},
	"an effect that is remembered before it happened": {"refused", "Remember an effect only after", func(w *idempotenttest.World) {
		handlesAnew(w, idempotent.Rerun, honest(), true, func() handler {
			sent := false
			return func(ctx context.Context, s string) (charge, error) {
				if sent {
					return charge{"ch_1"}, nil
				}
				sent = true
				return pay(ctx, s)
			}
		})
	}},
	"a charge that is voided after a Commit in doubt": {"lost-reply,refused", "Undo an effect only if", func(w *idempotenttest.World) {
		voiding(w, func(error) bool { return true })
	}},
	"a resolver that guesses": {"killed-after", "Answer Resolved only with evidence", func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, keyless(), true, refer)
		resolves(w, func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.Resolved(charge{"ch_1"}), nil
		})
	}},
	"a resolver that takes every error for not found": {"killed-after,500", "Answer ProvenNotExecuted only if", func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, keyless(), false, refer)
		resolves(w, func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			c, err := find(ctx, r.ID.DownstreamKey())
			if err != nil {
				return idempotent.ProvenNotExecuted(r.Token), nil
			}
			return idempotent.Resolved(c), nil
		})
	}},

	"an error that sync.Once keeps": {"refused", "An execution environment serves many requests", func(w *idempotenttest.World) {
		handlesAnew(w, idempotent.Rerun, &bank{byKey: map[string]string{"token": "t"}}, true, func() handler {
			var login sync.Once
			var err error
			return func(ctx context.Context, s string) (charge, error) {
				if login.Do(func() { _, err = find(ctx, "token") }); err != nil {
					return charge{}, idempotent.NotExecuted(err)
				}
				return pay(ctx, s)
			}
		})
	}},
	"a context that is kept": {"none", "An execution environment serves many requests", func(w *idempotenttest.World) {
		handlesAnew(w, idempotent.Rerun, honest(), true, func() handler {
			var start sync.Once
			var first context.Context
			return func(ctx context.Context, s string) (charge, error) {
				start.Do(func() { first = ctx })
				return pay(first, s)
			}
		})
		w.OtherKey("order-2")
	}},
	"a mutex that stays locked": {"refused", "Unlock a mutex in a defer", func(w *idempotenttest.World) {
		handlesAnew(w, idempotent.Rerun, honest(), true, func() handler {
			var mu sync.Mutex
			return func(ctx context.Context, s string) (charge, error) {
				mu.Lock()
				c, err := pay(ctx, s)
				if err != nil {
					return c, err
				}
				mu.Unlock()
				return c, nil
			}
		})
	}},
	"a client with more time than the function": {"hangs", "Return as soon as the handler's context ends", handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (charge, error) {
		return impatient(40*time.Second, func(err error) error { return err })(context.WithoutCancel(ctx), s)
	})},

	"a key without the tenant": {"none", "Put all that distinguishes two requests into the key", func(w *idempotenttest.World) {
		keyed(w, func(id string) (string, string) { return "all", path.Base(id) })
		w.OtherKey("globex/order-1")
	}},
	"a key and a fingerprint without the tenant": {"", "Put all that distinguishes two requests into the key", func(w *idempotenttest.World) {
		b := honest()
		w.Provider(b)
		w.ExactlyOnce("charge", b.count)
		idempotenttest.Handle(w, "acme/order-1", func(g *idempotent.Guard) handler {
			return idempotent.Wrap(g, func(_ context.Context, id string) (idempotent.Key, error) {
				return idempotent.Key{Operation: "charge", Scope: "all", ID: path.Base(id), Fingerprint: idempotent.FingerprintBytes([]byte(path.Base(id)))}, nil
			}, pay, recovering(idempotent.Rerun))
		})
		w.OtherKey("globex/order-1")
	}},
	"a key with the date": {"none", "Take the key from the request", func(w *idempotenttest.World) {
		keyed(w, func(id string) (string, string) { return "acme", id + today() })
	}},
	"a provider's key with the date": {"killed-after", "Send the same key", handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (charge, error) {
		return post(ctx, "1", "Idempotency-Key", s+today())
	})},
	"no guard": {"none", "Wrap the handler with the guard", func(w *idempotenttest.World) {
		b := keyless()
		w.Provider(b)
		w.AtMostOnce("charge", b.count)
		idempotenttest.Handle(w, "order-1", func(*idempotent.Guard) handler {
			return func(ctx context.Context, s string) (charge, error) { return post(ctx, "1", "Reference", s) }
		})
	}},
	"retries of its own": {"lost-reply", "The provider has repeated", handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (c charge, err error) {
		for range 3 {
			if c, err = refer(ctx, s); err == nil {
				return c, nil
			}
		}
		return c, err
	})},
	"a second provider": {"lost-reply", "Do not ask another provider", handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (charge, error) {
		if c, err := refer(ctx, s); err == nil {
			return c, nil
		}
		return read(send(ctx, http.DefaultClient, http.MethodPost, "http://other.test/charges", orderOf("1"), "Reference", idempotent.DownstreamKey(ctx)))
	})},
	"a count that the SDK repeats": {"sent-twice", "The AWS SDK repeats", func(w *idempotenttest.World) {
		effecting(w, "DynamoDB: UpdateItem", idempotent.Reconcile, func(ctx context.Context, add func(context.Context) error) error { return add(ctx) })
	}},
	"no key for the provider": {"killed-after", "Send idempotent.DownstreamKey(ctx) with", handling(idempotent.Rerun, keyless, true, func(ctx context.Context, _ string) (charge, error) {
		return post(ctx, "1", "Accept", "application/json")
	})},
	"a row that exists already": {"killed-after", "Take what an earlier run did for done", func(w *idempotenttest.World) {
		meetsRow(w, func(err error) error { return err })
	}},
	"a panic about a row that exists already": {"", "Take what an earlier run did for done", func(w *idempotenttest.World) {
		meetsRow(w, func(err error) error { panic(err) })
	}},
	"no promise": {"none", "Say in the body what must hold", func(w *idempotenttest.World) {
		w.Provider(honest())
		idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, pay))
	}},
	"a table that does not exist": {"none", "Without a fault the request must succeed", handling(idempotent.Rerun, honest, true, func(context.Context, string) (charge, error) {
		return charge{}, errors.New("no such table")
	})},
	"a mail under Rerun": {"killed-after", "A run after a fault repeats", func(w *idempotenttest.World) {
		effecting(w, "mail", idempotent.Rerun, func(ctx context.Context, mail func(context.Context) error) error { return mail(ctx) })
	}},
	"an answer with the time": {"refused", "Take the answer from the request", handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (charge, error) {
		c, err := pay(ctx, s)
		return charge{fmt.Sprint(c.ID, time.Now())}, err
	})},
}

// meetsRow adds a handler that inserts a row, and fails if it exists.
func meetsRow(w *idempotenttest.World, as func(error) error) {
	rows := 0
	w.ExactlyOnce("row", func() int { return rows })
	idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, func(ctx context.Context, s string) (charge, error) {
		err := w.Do(ctx, "insert", func() error {
			if rows == 1 {
				return errors.New("duplicate key")
			}
			rows++
			return nil
		})
		if rows == 1 && err != nil {
			err = as(err)
		}
		return charge{s}, err
	}))
}

// ordering adds a handler that writes an order into DynamoDB.
func ordering(w *idempotenttest.World, f func(ctx context.Context, db dynamostore.Client, id string) (string, error)) {
	booking(w, true, idempotent.Rerun, f)
}

// booking adds a handler that writes into DynamoDB.
func booking(w *idempotenttest.World, exactly bool, recovery idempotent.Recovery, f func(ctx context.Context, db dynamostore.Client, id string) (string, error)) {
	db := dynamotest.In(w, "once", []string{"orders", "log"})
	promise(w, exactly, "order", func() int {
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
		}, recovering(recovery))
	})
}

// voiding adds a handler that charges, commits an order, and voids the charge after an
// error of the Commit, if void says so.
func voiding(w *idempotenttest.World, void func(error) bool) {
	b := honest()
	w.Provider(b)
	w.AtMostOnce("charge", b.count)
	booking(w, false, idempotent.Reconcile, func(ctx context.Context, _ dynamostore.Client, id string) (string, error) {
		if _, err := pay(ctx, id); err != nil {
			return "", err
		}
		err := dynamostore.Commit(ctx, id, put("orders", id))
		if err == nil || !void(err) {
			return id, err
		}
		if answer, err := send(ctx, http.DefaultClient, http.MethodDelete, charges, "", "Idempotency-Key", idempotent.DownstreamKey(ctx)); err != nil {
			return "", err
		} else {
			answer.Body.Close()
		}
		return "", idempotent.NotExecuted(err)
	})
}

func keyOf(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}
}

func put(table, id string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: keyOf(id)}}
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
	handlesAnew(w, recovery, b, exactly, func() handler { return f }, optFns...)
}

// handlesAnew adds a handler that newHandler makes for each execution environment.
func handlesAnew(w *idempotenttest.World, recovery idempotent.Recovery, b *bank, exactly bool, newHandler func() handler, optFns ...func(*idempotent.Operation)) {
	w.Provider(b)
	promise(w, exactly, "charge", b.count)
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) handler {
		return guarded(recovery, newHandler(), optFns...)(g)
	})
}

func promise(w *idempotenttest.World, exactly bool, name string, count func() int) {
	if exactly {
		w.ExactlyOnce(name, count)
	} else {
		w.AtMostOnce(name, count)
	}
}

// keyed adds a handler with a key by scope and id of the request.
func keyed(w *idempotenttest.World, key func(id string) (scope, of string)) {
	b := honest()
	w.Provider(b)
	w.ExactlyOnce("charge", b.count)
	idempotenttest.Handle(w, "acme/order-1", func(g *idempotent.Guard) handler {
		return idempotent.Wrap(g, idempotent.KeyFrom("charge", key), pay, recovering(idempotent.Rerun))
	})
}

// both adds a handler that charges two orders at once.
func both(w *idempotenttest.World, recovery idempotent.Recovery, b *bank, one func(ctx context.Context, id string) error) {
	twoCharges(w, b, true)
	idempotenttest.Handle(w, "orders", guarded(recovery, atOneTime(one)))
}

func atOneTime(one func(ctx context.Context, id string) error) handler {
	return func(ctx context.Context, _ string) (charge, error) {
		errs := make([]error, 2)
		var calls sync.WaitGroup
		for i := range errs {
			calls.Go(func() { errs[i] = one(ctx, fmt.Sprint(i+1)) })
		}
		calls.Wait()
		return charge{"both"}, errors.Join(errs...)
	}
}

// payOf charges one of several orders.
func payOf(ctx context.Context, id string) error {
	_, err := post(ctx, id, "Idempotency-Key", idempotent.DownstreamKey(ctx)+"-"+id)
	return err
}

func stepOf(ctx context.Context, id string, f func(context.Context) error, optFns ...func(*idempotent.StepOptions)) error {
	_, err := idempotent.Step(ctx, "charge-"+id, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }, optFns...)
	return err
}

type webAnswer struct {
	StatusCode int
	Header     http.Header
	Body       string
}

func behind(o *lambdahttp.Options) {
	o.Scope, o.Operation = lambdahttp.SingleTenant, func(*lambdahttp.Request) string { return "charge" }
	o.Guard = recovering(idempotent.Rerun)
}

// effecting adds a handler with a named effect.
func effecting(w *idempotenttest.World, name string, recovery idempotent.Recovery, f func(ctx context.Context, effect func(context.Context) error) error) {
	n := 0
	promise(w, recovery == idempotent.Rerun, "effect", func() int { return n })
	idempotenttest.Handle(w, "order-1", guarded(recovery, func(ctx context.Context, s string) (charge, error) {
		return charge{s}, f(ctx, func(ctx context.Context) error {
			return w.Do(ctx, name, func() error { n++; return nil })
		})
	}))
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }

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
		twoCharges(w, &bank{}, true)
		batch := events.SQSEvent{Records: []events.SQSMessage{
			{MessageId: "m-1", Body: `{"ID":"1"}`, EventSource: "aws:sqs", EventSourceARN: queueARN},
			{MessageId: "m-2", Body: `{"ID":"2"}`, EventSource: "aws:sqs", EventSourceARN: queueARN},
		}}
		idempotenttest.Handle(w, batch, func(g *idempotent.Guard) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
			return lambdabatch.SQS(g, chargeOrder, atOnce)
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a stream": {func(w *idempotenttest.World) {
		twoCharges(w, &bank{}, true)
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
		inserts(w, inTransaction)
	}, []event.Kind{event.TakenOver}},
	"at least once": {func(w *idempotenttest.World) {
		repeats(w, &bank{noKeys: true})
	}, []event.Kind{event.TakenOver}},
	"a mail at least once": {func(w *idempotenttest.World) {
		n := 0
		w.AtLeastOnce("mail", func() int { return n })
		idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, func(ctx context.Context, s string) (charge, error) {
			return charge{s}, w.Do(ctx, "mail", func() error { n++; return nil })
		}))
	}, []event.Kind{event.TakenOver, "an effect repeated without a key"}},
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
	"two goroutines":      {func(w *idempotenttest.World) { both(w, idempotent.Rerun, honest(), payOf) }, []event.Kind{event.TakenOver}},
	"a group that cancels": {func(w *idempotenttest.World) {
		twoCharges(w, honest(), true)
		idempotenttest.Handle(w, "orders", guarded(idempotent.Rerun, func(ctx context.Context, _ string) (charge, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			var group sync.WaitGroup
			for _, id := range []string{"1", "2"} {
				group.Go(func() {
					if err := payOf(ctx, id); err != nil {
						cancel(err) // the first error ends the other call
					}
				})
			}
			group.Wait()
			return charge{"both"}, context.Cause(ctx)
		}))
	}, []event.Kind{event.TakenOver}},
	"two steps at once": {func(w *idempotenttest.World) {
		both(w, idempotent.Resume, honest(), func(ctx context.Context, id string) error {
			return stepOf(ctx, id, func(ctx context.Context) error { return payOf(ctx, id) })
		})
	}, []event.Kind{event.TakenOver, event.StepReplayed}},
	"two steps at once without keys": {func(w *idempotenttest.World) {
		twoCharges(w, keyless(), false)
		idempotenttest.Handle(w, "orders", guarded(idempotent.Resume, atOneTime(func(ctx context.Context, id string) error {
			return stepOf(ctx, id, func(ctx context.Context) error {
				_, err := post(ctx, id, "Reference", id)
				return err
			}, once)
		})))
	}, []event.Kind{event.MarkedUnknown}},
	"two steps that share a token": {func(w *idempotenttest.World) {
		login := make(chan struct{}, 1) // a lock that the clock of Explore sees
		both(w, idempotent.Resume, &bank{byKey: map[string]string{"token": "t"}}, func(ctx context.Context, id string) error {
			return stepOf(ctx, id, func(ctx context.Context) error {
				select {
				case login <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				_, err := find(ctx, "token")
				<-login
				if err != nil {
					return err
				}
				return payOf(ctx, id)
			})
		})
	}, []event.Kind{event.TakenOver}},
	"headers of one exchange": {func(w *idempotenttest.World) {
		b := honest()
		w.Provider(b)
		w.ExactlyOnce("charge", b.count)
		req := events.LambdaFunctionURLRequest{RawPath: "/charges", Body: "{}", Headers: map[string]string{"content-type": "application/json", "idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}}
		req.RequestContext.HTTP.Method = http.MethodPost
		n := 0
		idempotenttest.Handle(w, req, func(g *idempotent.Guard) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
			return lambdahttp.FunctionURL(g, func(ctx context.Context, _ events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
				c, err := pay(ctx, "")
				n++
				return events.LambdaFunctionURLResponse{StatusCode: 201, Body: c.ID, Cookies: []string{fmt.Sprint("seen=", n)}, Headers: map[string]string{
					"Content-Type": "text/plain", "date": time.Now().Format(http.TimeFormat), "x-amzn-trace-id": fmt.Sprint("Root=", n), "Set-Cookie": fmt.Sprint("n=", n),
				}}, err
			}, behind)
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a streamed answer": {func(w *idempotenttest.World) {
		b := honest()
		w.Provider(b)
		w.ExactlyOnce("charge", b.count)
		idempotenttest.Handle(w, "{}", func(g *idempotent.Guard) func(context.Context, string) (webAnswer, error) {
			h := lambdahttp.Middleware(g, behind)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Date", time.Now().Format(http.TimeFormat))
				rw.(http.Flusher).Flush()
				c, err := pay(r.Context(), "")
				if err != nil {
					panic(err)
				}
				io.WriteString(rw, c.ID)
			}))
			return func(ctx context.Context, body string) (answer webAnswer, err error) {
				defer func() {
					if recover() != nil {
						err = errors.New("the connection was closed")
					}
				}()
				rec := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/charges", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
				h.ServeHTTP(rec, r)
				return webAnswer{rec.Code, rec.Header(), rec.Body.String()}, nil
			}
		})
	}, []event.Kind{event.TakenOver, event.Replayed}},
	"a streamed request and reply": {handling(idempotent.Rerun, honest, true, func(ctx context.Context, _ string) (c charge, err error) {
		body, order := io.Pipe()
		go func() {
			_, err := io.WriteString(order, orderOf("1"))
			order.CloseWithError(err)
		}()
		defer body.Close()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, charges, body)
		if err != nil {
			return c, err
		}
		req.Header.Set("Idempotency-Key", idempotent.DownstreamKey(ctx))
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return c, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(iotest.OneByteReader(answer.Body))
		if err != nil || answer.StatusCode >= 300 || answer.Request == nil || answer.Request.RequestURI != "" {
			return c, fmt.Errorf("%d %w", answer.StatusCode, err)
		}
		return c, json.Unmarshal(text, &c)
	}), []event.Kind{event.TakenOver}},
	"a transaction in a step": {func(w *idempotenttest.World) {
		insertsBy(w, idempotent.Resume, func(ctx context.Context, db *sql.DB, _ string) error {
			return stepOf(ctx, "1", func(ctx context.Context) error { return inTransaction(ctx, db, idempotent.DownstreamKey(ctx)) })
		})
	}, []event.Kind{event.TakenOver, event.StepReplayed}},
	"a driver with contexts": {func(w *idempotenttest.World) {
		insertsInto(w, &table{contexts: true}, idempotent.Rerun, func(ctx context.Context, db *sql.DB, id string) error {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
			if err != nil {
				return err
			}
			defer tx.Rollback()
			count, err := tx.PrepareContext(ctx, "SELECT count(*) FROM charges WHERE id = ?")
			if err != nil {
				return err
			}
			defer count.Close()
			var n, again int
			if err := count.QueryRowContext(ctx, rowID{id}).Scan(&n); err != nil {
				return err
			}
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM charges WHERE id = ? -- direct", rowID{id}).Scan(&again); err != nil || n != again {
				return fmt.Errorf("%d and %d rows, %w", n, again, err)
			}
			if n == 0 {
				if _, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES (?) -- direct", rowID{id}); err != nil {
					return err
				}
			}
			return tx.Commit()
		})
	}, []event.Kind{event.TakenOver}},
	"a statement of a driver with contexts": {func(w *idempotenttest.World) {
		insertsInto(w, &table{contexts: true}, idempotent.Reconcile, func(ctx context.Context, db *sql.DB, id string) error {
			s, err := db.PrepareContext(ctx, "INSERT INTO charges (id) VALUES (?)")
			if err != nil {
				return idempotent.NotExecuted(err)
			}
			defer s.Close()
			result, err := s.ExecContext(ctx, insertID{id})
			if err == nil {
				_, err = result.RowsAffected()
			}
			return err
		})
	}, []event.Kind{event.MarkedUnknown}},
	"a unique column": {func(w *idempotenttest.World) {
		insertsOnce(w, &table{unique: true}, func(id string) any { return id })
	}, []event.Kind{event.TakenOver}},
	"a unique column of a driver with contexts": {func(w *idempotenttest.World) {
		insertsOnce(w, &table{unique: true, contexts: true}, func(id string) any { return insertID{id} })
	}, []event.Kind{event.TakenOver}},
	"a prepared statement": {func(w *idempotenttest.World) {
		insertsBy(w, idempotent.Reconcile, func(ctx context.Context, db *sql.DB, id string) error {
			s, err := db.PrepareContext(ctx, "INSERT INTO charges VALUES (?)")
			if err != nil {
				return idempotent.NotExecuted(err)
			}
			defer s.Close()
			_, err = s.ExecContext(ctx, id)
			return err
		})
	}, []event.Kind{event.MarkedUnknown}},
	"two providers with one path": {func(w *idempotenttest.World) {
		banks := map[string]*bank{"bank.test/charges": honest(), "other.test/charges": honest()}
		w.Provider(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { banks[r.Host+r.RequestURI].ServeHTTP(rw, r) }))
		for name, b := range banks {
			w.ExactlyOnce(name, b.count)
		}
		idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, func(ctx context.Context, s string) (charge, error) {
			if _, err := pay(ctx, s); err != nil {
				return charge{}, err
			}
			return read(send(ctx, http.DefaultClient, http.MethodPost, "http://other.test/charges", orderOf("1"), "Idempotency-Key", "other-"+idempotent.DownstreamKey(ctx)))
		}))
	}, []event.Kind{event.TakenOver}},
	"retries with a key": {handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (c charge, err error) {
		for n := range 3 {
			if c, err = pay(ctx, s); err == nil {
				return c, nil
			}
			select {
			case <-time.After(time.Second << n):
			case <-ctx.Done():
				return c, ctx.Err()
			}
		}
		return c, err
	}), []event.Kind{event.TakenOver}},
	"a cached token": {func(w *idempotenttest.World) {
		handlesAnew(w, idempotent.Rerun, &bank{byKey: map[string]string{"token": "t"}}, true, func() handler {
			var token charge
			return func(ctx context.Context, s string) (charge, error) {
				if token.ID == "" {
					t, err := find(ctx, "token")
					if err != nil {
						return t, idempotent.NotExecuted(err)
					}
					token = t
				}
				return pay(ctx, s)
			}
		})
		w.OtherKey("order-2")
	}, []event.Kind{event.TakenOver, event.Retryable, "NotExecuted after a request"}},
	"a client with a time-out": {func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, keyless(), true, impatient(5*time.Second, func(err error) error { return err }))
		resolves(w, asks)
		hasID(w)
	}, []event.Kind{event.MarkedUnknown, event.Resolved}},
	"two tenants": {func(w *idempotenttest.World) {
		keyed(w, path.Split)
		w.OtherKey("globex/order-1")
	}, []event.Kind{event.TakenOver}},
	"a charge that is voided if nothing was committed": {func(w *idempotenttest.World) {
		voiding(w, func(err error) bool { return errors.Is(err, idempotent.ErrNotApplied) })
	}, []event.Kind{event.Retryable, event.Replayed}},
	"a mail at most once": {func(w *idempotenttest.World) {
		effecting(w, "mail", idempotent.Resume, func(ctx context.Context, mail func(context.Context) error) error { return stepOf(ctx, "1", mail, once) })
	}, []event.Kind{event.MarkedUnknown}},
	"a charge that is looked for": {handling(idempotent.Rerun, honest, true, func(ctx context.Context, s string) (c charge, err error) {
		if _, err := pay(ctx, s); err != nil {
			return c, err
		}
		for range 5 {
			if c, err = find(ctx, idempotent.DownstreamKey(ctx)); err == nil || ctx.Err() != nil {
				return c, err
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		return c, err
	}), []event.Kind{event.TakenOver}},
	"NotExecuted without a connection": {handling(idempotent.Reconcile, keyless, false, func(ctx context.Context, s string) (charge, error) {
		connected := false
		c, err := refer(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}), s)
		if err != nil && !connected {
			err = idempotent.NotExecuted(err)
		}
		return c, err
	}), []event.Kind{event.Retryable, event.MarkedUnknown}},
	"a UUID as key": {handling(idempotent.Rerun, honest, true, func(ctx context.Context, _ string) (charge, error) {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{})
		return post(ctx, "1", "Idempotency-Key", idempotent.AsUUID(idempotent.DownstreamKey(ctx)))
	}), []event.Kind{event.TakenOver}},
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

func twoCharges(w *idempotenttest.World, b *bank, exactly bool) {
	w.Provider(b)
	promise(w, exactly, "charge 1", b.charged("1"))
	promise(w, exactly, "charge 2", b.charged("2"))
}

func chargeOrder(ctx context.Context, o order) error {
	_, err := post(ctx, o.ID, "Idempotency-Key", idempotent.DownstreamKey(ctx))
	return err
}

// inserts adds a handler that writes a row, and may run again.
func inserts(w *idempotenttest.World, f func(ctx context.Context, db *sql.DB, id string) error) {
	insertsBy(w, idempotent.Rerun, f)
}

func insertsBy(w *idempotenttest.World, recovery idempotent.Recovery, f func(ctx context.Context, db *sql.DB, id string) error) {
	insertsInto(w, &table{}, recovery, f)
}

func insertsInto(w *idempotenttest.World, rows *table, recovery idempotent.Recovery, f func(ctx context.Context, db *sql.DB, id string) error) {
	promise(w, recovery == idempotent.Rerun, "row", func() int { return len(rows.ids) })
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) func(context.Context, string) (string, error) {
		db := sql.OpenDB(w.Connector(rows))
		key := idempotent.KeyFrom("charge", func(id string) (string, string) { return "acme", id })
		return idempotent.Wrap(g, key, func(ctx context.Context, id string) (string, error) {
			return id, f(ctx, db, idempotent.DownstreamKey(ctx))
		}, recovering(recovery))
	})
}

// inTransaction adds a row that is not there.
func inTransaction(ctx context.Context, db *sql.DB, id string) error {
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
}

// insertsOnce adds a handler that inserts a row in a transaction, or finds that it exists.
func insertsOnce(w *idempotenttest.World, rows *table, argument func(id string) any) {
	insertsInto(w, rows, idempotent.Rerun, func(ctx context.Context, db *sql.DB, id string) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: rows.isolation()})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		s, err := tx.PrepareContext(ctx, "INSERT INTO charges VALUES (?)")
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := s.ExecContext(ctx, argument(id)); err != nil && !errors.Is(err, errDuplicate) {
			return err
		}
		return tx.Commit()
	})
}

// isolation returns the only level that a connection has.
func (t *table) isolation() sql.IsolationLevel {
	if t.contexts {
		return sql.LevelSerializable
	}
	return sql.LevelDefault
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
type table struct {
	ids      []string
	unique   bool     // their column is
	contexts bool     // its connections have every optional interface of a driver
	refuses  error    // of Connect
	readOnly error    // of Begin
	connects int      // how often
	resets   int      // of sessions
	locked   *session // whose open transaction has added rows
}

func (t *table) Connect(context.Context) (driver.Conn, error) {
	t.connects++
	if t.contexts {
		return &contextSession{session: session{table: t}}, t.refuses
	}
	return &session{table: t}, t.refuses
}

func (t *table) Driver() driver.Driver { return nil }

// rowID is an argument that only contextSession takes, and insertID one of its INSERT.
type (
	rowID    struct{ id string }
	insertID struct{ id string }
)

// contextSession is a connection with the optional interfaces of package driver.
type contextSession struct {
	session
	stale bool // after a transaction
}

func (s *contextSession) IsValid() bool { return !s.stale }

func (s *contextSession) ResetSession(context.Context) error {
	s.table.resets++
	return nil
}

func (s *contextSession) CheckNamedValue(v *driver.NamedValue) error {
	id, ok := v.Value.(rowID)
	if !ok {
		return driver.ErrSkip
	}
	v.Value = id.id
	return nil
}

func (s *contextSession) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.Isolation != driver.IsolationLevel(sql.LevelSerializable) {
		return nil, errors.New("want a serializable transaction")
	}
	if s.stale {
		return nil, errors.New("a stale connection")
	}
	s.stale = true
	return s.Begin()
}

func (s *contextSession) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if strings.HasSuffix(query, "direct") {
		return nil, errors.New("a statement that was not prepared")
	}
	prepared := contextStatement{statement{&s.session, query}}
	if strings.HasPrefix(query, "INSERT") {
		return insertStatement{prepared}, nil
	}
	return prepared, nil
}

func (s *contextSession) Prepare(string) (driver.Stmt, error) { return nil, errNoContext }

func (s *contextSession) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return contextStatement{statement{&s.session, query}}.ExecContext(ctx, args)
}

func (s *contextSession) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return contextStatement{statement{&s.session, query}}.QueryContext(ctx, args)
}

type contextStatement struct{ statement }

func (contextStatement) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (contextStatement) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

type insertStatement struct{ contextStatement }

func (insertStatement) CheckNamedValue(v *driver.NamedValue) error {
	v.Value = v.Value.(insertID).id
	return nil
}

var errNoContext = errors.New("a call without a context")

func (s contextStatement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.statement.Exec([]driver.Value{args[0].Value})
}

func (s contextStatement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.statement.Query([]driver.Value{args[0].Value})
}

// session is a connection. To close it leaves its transaction open.
type session struct {
	table *table
	open  bool // a transaction is
	added []string
}

func (s *session) Close() error { return nil }

func (s *session) Prepare(query string) (driver.Stmt, error) {
	if strings.HasPrefix(query, "DROP") {
		return nil, errors.New("no such statement")
	}
	return statement{s, query}, nil
}

func (s *session) Begin() (driver.Tx, error) {
	s.open = true
	return s, s.table.readOnly
}

func (s *session) Commit() error {
	if !s.open {
		return errors.New("no transaction")
	}
	s.table.ids = append(s.table.ids, s.added...)
	return s.Rollback()
}

func (s *session) Rollback() error {
	if !s.open {
		panic("there is no transaction")
	}
	if s.added, s.open = nil, false; s.table.locked == s {
		s.table.locked = nil
	}
	return nil
}

type statement struct {
	session *session
	query   string
}

func (s statement) Close() error  { return nil }
func (s statement) NumInput() int { return strings.Count(s.query, "?") }

func (s statement) Exec(args []driver.Value) (driver.Result, error) {
	t, rows, id := s.session, s.session.table, args[0].(string)
	switch {
	case rows.locked != nil && rows.locked != t:
		return nil, errLocked
	case rows.unique && slices.Contains(rows.ids, id):
		return nil, errDuplicate
	}
	t.added, rows.locked = append(t.added, id), t
	if !t.open {
		t.open = true
		return driver.RowsAffected(1), t.Commit()
	}
	return driver.RowsAffected(1), nil
}

var (
	errLocked    = errors.New("another transaction has added rows")
	errDuplicate = errors.New("the row exists")
)

func (s statement) Query(args []driver.Value) (driver.Rows, error) {
	if !strings.HasPrefix(s.query, "SELECT count(*) FROM charges ") {
		return nil, errors.New("no such table")
	}
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
