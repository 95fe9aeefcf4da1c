// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// bank is a provider that counts its charges. With keys, a repeated key gets the first answer.
type bank struct {
	mu      sync.Mutex
	noKeys  bool
	charges int
	byKey   map[string]string
}

func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges
}

func (b *bank) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if b.byKey == nil {
		b.byKey = map[string]string{}
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
	if !known || b.noKeys {
		b.charges++
		id = fmt.Sprint("ch_", b.charges)
		b.byKey[key] = id
	}
	rw.WriteHeader(http.StatusCreated)
	json.NewEncoder(rw).Encode(charge{id})
}

type charge struct{ ID string }

// post asks the bank for a charge.
func post(ctx context.Context, key string) (c charge, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bank.test/charges", strings.NewReader(`{"amount":1}`))
	if err != nil {
		return c, err
	}
	req.Header.Set("Idempotency-Key", key)
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

func guarded(recovery idempotent.Recovery, f handler, optFns ...func(*idempotent.Options)) func(*idempotent.Guard) handler {
	return func(g *idempotent.Guard) handler {
		return idempotent.Wrap(g, idempotent.KeyFrom("charge", func(id string) (string, string) { return "acme", id }), f,
			append([]func(*idempotent.Options){func(o *idempotent.Options) {
				if o.Recovery = recovery; recovery == idempotent.Resume {
					o.Steps = []string{"charge", "charge-1", "charge-2", "charge-3", "charge-4", "charge-5"}
				}
			}}, optFns...)...)
	}
}

func pay(ctx context.Context, _ string) (charge, error) {
	return post(ctx, idempotent.DownstreamKey(ctx))
}

func asks(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
	return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
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
	}})
}

// wrong are handlers with one mistake each.
var wrong = map[string]func(w *idempotenttest.World){
	"NotExecuted after sending": func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, false, func(ctx context.Context, s string) (charge, error) {
			c, err := pay(ctx, s)
			if err != nil {
				return c, idempotent.NotExecuted(err)
			}
			return c, nil
		})
	},
	"an effect outside a step": func(w *idempotenttest.World) {
		handles(w, idempotent.Resume, &bank{noKeys: true}, false, pay)
	},
	"no downstream key under Rerun": func(w *idempotenttest.World) {
		n := 0
		handles(w, idempotent.Rerun, &bank{}, true, func(ctx context.Context, _ string) (charge, error) {
			n++
			return post(ctx, fmt.Sprint("key-", n))
		})
	},
	"no downstream key under Resume": func(w *idempotenttest.World) {
		n := 0
		handles(w, idempotent.Resume, &bank{}, true, func(ctx context.Context, _ string) (charge, error) {
			return idempotent.Step(ctx, "charge", func(ctx context.Context) (charge, error) {
				n++
				return post(ctx, fmt.Sprint("key-", n))
			})
		})
	},
	"another key": func(w *idempotenttest.World) {
		handles(w, idempotent.Rerun, &bank{}, true, func(ctx context.Context, _ string) (charge, error) {
			e, _ := idempotent.FromContext(ctx)
			return post(ctx, fmt.Sprint(idempotent.DownstreamKey(ctx), "-", e.Attempt()))
		})
	},
	"another context": func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, func(ctx context.Context, _ string) (charge, error) {
			return post(context.Background(), idempotent.DownstreamKey(ctx))
		})
	},
	"AtMostOnce forgotten": func(w *idempotenttest.World) {
		handles(w, idempotent.Resume, &bank{noKeys: true}, false, func(ctx context.Context, s string) (charge, error) {
			return idempotent.Step(ctx, "charge", func(ctx context.Context) (charge, error) { return pay(ctx, s) })
		})
	},
	"no resolver": func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, pay)
	},
	"proven too early": func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, pay)
		w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
			return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
				return idempotent.ProvenNotExecuted(r.Token), nil
			}})
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
		w.Provider(b)
		w.Check("charges", func() error {
			if n := b.count(); n > 1 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		w.AtLeastOnce("charge", b.count)
		idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, pay))
	},
	"a resolver with another value": func(w *idempotenttest.World) {
		b := &bank{noKeys: true}
		handles(w, idempotent.Reconcile, b, true, pay)
		w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
			return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
				if b.byKey[r.ID.DownstreamKey()] == "" {
					return idempotent.ProvenNotExecuted(r.Token), nil
				}
				return idempotent.Resolved(charge{"settled"}), nil
			}})
		})
	},
	"a step name that changes": func(w *idempotenttest.World) {
		n := 0
		handles(w, idempotent.Resume, &bank{}, true, func(ctx context.Context, s string) (charge, error) {
			n++
			return idempotent.Step(ctx, fmt.Sprint("charge-", n), func(ctx context.Context) (charge, error) { return pay(ctx, s) })
		})
	},
	"a goroutine that goes on": func(w *idempotenttest.World) {
		handles(w, idempotent.Rerun, &bank{}, true, func(ctx context.Context, s string) (charge, error) {
			go pay(ctx, s)
			return charge{"ch_1"}, nil
		})
	},
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
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, func(ctx context.Context, s string) (charge, error) {
			c, err := pay(ctx, s)
			if err != nil {
				return c, idempotent.Final("failed", "the bank failed")
			}
			return c, nil
		})
		w.Reconciler(asks)
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
		}, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	})
}

func put(table, id string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}}}
}

func handles(w *idempotenttest.World, recovery idempotent.Recovery, b *bank, exactly bool, f handler) {
	w.Provider(b)
	if exactly {
		w.ExactlyOnce("charge", b.count)
	} else {
		w.AtMostOnce("charge", b.count)
	}
	idempotenttest.Handle(w, "order-1", guarded(recovery, f))
}

var updateStories = flag.Bool("update", false, "write the stories in testdata/stories")

// Each mistake is found with few schedules, and its story names the rule.
func TestExploreFindsMistakes(t *testing.T) {
	for name, body := range wrong {
		t.Run(name, func(t *testing.T) {
			story, tried, _, _ := idempotenttest.Explored(t, body)
			file := filepath.Join("testdata", "stories", strings.ReplaceAll(name, " ", "-")+".txt")
			if *updateStories {
				if err := os.WriteFile(file, []byte(story+"\n"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || story+"\n" != string(want) {
				t.Errorf("the story is\n%s\nwant\n%s%v", story, want, err)
			}
			if lines := strings.Count(story, "\n") + 1; tried > 40 || lines > 25 || strings.Contains(story, "no rule found") {
				t.Errorf("%d schedules, %d lines", tried, lines)
			}
		})
	}
}

// Right handlers pass, with the same stories on every run, and show what they have to
// show.
func TestExplore(t *testing.T) {
	for name, row := range map[string]struct {
		body  func(w *idempotenttest.World)
		facts []event.Kind
	}{
		"at most once under Reconcile": {func(w *idempotenttest.World) {
			handles(w, idempotent.Reconcile, &bank{noKeys: true}, false, pay)
		}, []event.Kind{event.MarkedUnknown, event.Unresolved, event.InProgress, event.Replayed}},
		"resolved under Reconcile": {func(w *idempotenttest.World) {
			handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, pay)
			w.Reconciler(asks)
		}, []event.Kind{event.Resolved, event.TakenOver, event.ReconcileFailed}},
		"Rerun with a key": {func(w *idempotenttest.World) {
			handles(w, idempotent.Rerun, &bank{}, true, pay)
		}, []event.Kind{event.TakenOver}},
		"at least once": {func(w *idempotenttest.World) {
			b := &bank{noKeys: true}
			w.Provider(b)
			w.AtLeastOnce("charge", b.count)
			idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, pay))
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
					}, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
				}
			})
		}, []event.Kind{event.TakenOver, event.Retryable}},
		"steps with keys": {func(w *idempotenttest.World) {
			handles(w, idempotent.Resume, &bank{}, true, twice)
		}, []event.Kind{event.TakenOver, event.StepReplayed}},
		"a Commit": {func(w *idempotenttest.World) {
			ordering(w, func(ctx context.Context, _ dynamostore.Client, id string) (string, error) {
				return id, dynamostore.Commit(ctx, id, put("orders", id))
			})
		}, []event.Kind{event.TakenOver, event.Replayed}},
		"a step without keys": {func(w *idempotenttest.World) {
			handles(w, idempotent.Resume, &bank{noKeys: true}, false, func(ctx context.Context, s string) (charge, error) {
				return idempotent.Step(ctx, "charge", func(ctx context.Context) (charge, error) { return pay(ctx, s) },
					func(o *idempotent.StepOptions) { o.AtMostOnce = true })
			})
		}, []event.Kind{event.MarkedUnknown, event.StepReplayed}},
	} {
		t.Run(name, func(t *testing.T) {
			story, tried, hash, facts := idempotenttest.Explored(t, row.body)
			if story != "" || tried != 1000 {
				t.Errorf("%d schedules: %s", tried, story)
			}
			for _, fact := range row.facts {
				if facts[string(fact)] == 0 {
					t.Errorf("no schedule showed %q: %v", fact, facts)
				}
			}
			if _, _, again, _ := idempotenttest.Explored(t, row.body); again != hash {
				t.Error("another run has other stories")
			}
		})
	}
}

// With processes that outlive their lease, "not found" does not prove that nothing can
// follow.
func TestExploreOutlives(t *testing.T) {
	story, _, _, _ := idempotenttest.Explored(t, func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, pay)
		w.Reconciler(asks)
	}, func(o *idempotenttest.ExploreOptions) { o.Outlives = true })
	if !strings.Contains(story, "Answer ProvenNotExecuted only if nothing can follow") {
		t.Errorf("the story:\n%s", story)
	}
}

// twice makes a charge after another step.
func twice(ctx context.Context, s string) (charge, error) {
	if _, err := idempotent.Step(ctx, "charge-1", func(context.Context) (int, error) { return 1, nil }); err != nil {
		return charge{}, err
	}
	return idempotent.Step(ctx, "charge", func(ctx context.Context) (charge, error) { return pay(ctx, s) })
}
