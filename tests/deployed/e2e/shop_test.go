// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/examples/charge-lambda/provider"
	"github.com/once-lambda/once/examples/charge-lambda/receipt"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// shop is the order example with its tables, and the services that survive its
// processes.
type shop struct {
	cfg                     aws.Config
	records, orders, outbox string
	services                string // address
	mail                    receipt.Service
	clock                   idempotenttest.Clock
}

func newShop(t *testing.T) *shop {
	t.Helper()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{cfg: engine.Config(endpoint), records: tableName(), orders: tableName(), outbox: tableName()}
	store, err := dynamostore.New(dynamostore.NewClient(s.cfg), s.records)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{s.orders, s.outbox} {
		if err := engine.CreateTable(t.Context(), dynamodb.NewFromConfig(s.cfg), table, "pk"); err != nil {
			t.Fatal(err)
		}
	}
	ledger, err := provider.New(filepath.Join(t.TempDir(), "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/provider/", http.StripPrefix("/provider", ledger))
	mux.Handle("/mail/", http.StripPrefix("/mail", &s.mail))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		ledger.Close()
	})
	s.services = server.URL
	return s
}

// mortalWire carries every call of a process. After the process's end, every call
// fails.
type mortalWire struct {
	mu     sync.Mutex
	calls  int
	dead   bool
	before int // the process dies before this call is sent
	after  int // and after the reply to this call
}

var errDead = errors.New("the process is dead")

func (p *mortalWire) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if err := p.cross(func() error {
		resp, err = http.DefaultTransport.RoundTrip(r)
		return err
	}); err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return nil, err
	}
	return resp, nil
}

// cross makes a call over the wire, if the process is alive, and returns its
// error.
func (p *mortalWire) cross(call func() error) error {
	p.mu.Lock()
	p.calls++
	n := p.calls
	p.dead = p.dead || n == p.before
	dead := p.dead
	p.mu.Unlock()
	if dead {
		return errDead
	}
	err := call()
	if n == p.after {
		p.mu.Lock()
		p.dead = true
		p.mu.Unlock()
		return errDead
	}
	return err
}

// process returns the shop of a new process, whose calls go through wire.
func (s *shop) process(t *testing.T, wire *mortalWire) *order.Shop {
	t.Helper()
	client := dynamostore.NewClient(s.cfg, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: wire} })
	store, err := dynamostore.New(client, s.records)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now, o.Logger = s.clock.Now, slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	payments, err := charge.NewClient(s.services + "/provider")
	if err != nil {
		t.Fatal(err)
	}
	return &order.Shop{
		Guard: guard, Client: client, Orders: s.orders, Outbox: s.outbox,
		Provider: mortalProvider{payments, wire}, Mailer: mortalMailer{&receipt.Client{Base: s.services + "/mail"}, wire},
	}
}

// mortalProvider and mortalMailer count as calls of the process.
type mortalProvider struct {
	order.Provider
	wire *mortalWire
}

func (p mortalProvider) Charge(ctx context.Context, key string, record idempotent.RecordID, r charge.Request) (c charge.Charge, err error) {
	err = p.wire.cross(func() (err error) {
		c, err = p.Provider.Charge(ctx, key, record, r)
		return err
	})
	return c, err
}

type mortalMailer struct {
	order.Mailer
	wire *mortalWire
}

func (m mortalMailer) Mail(ctx context.Context, key, order string) (id string, err error) {
	err = m.wire.cross(func() (err error) {
		id, err = m.Mailer.Mail(ctx, key, order)
		return err
	})
	return id, err
}

// books checks the provider's ledger, the tables and the mailed receipts: the
// order was paid once, written once with that payment, and has one receipt.
func (s *shop) books(t *testing.T, record idempotent.RecordID, confirmed order.Confirmation) {
	t.Helper()
	resp, err := http.Get(s.services + "/provider/charges")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ledger []provider.Charge
	if err := json.NewDecoder(resp.Body).Decode(&ledger); err != nil {
		t.Fatal(err)
	}
	var charges []string
	for _, c := range ledger {
		if c.Metadata["record"] == string(record) {
			charges = append(charges, c.ID)
		}
	}
	id := order.ID(record)
	receipts := 0
	mailed, err := (&receipt.Client{Base: s.services + "/mail"}).Mailed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mailed {
		if m.Order == id {
			receipts++
		}
	}
	if s.item(t, s.outbox, id) != nil {
		receipts++
	}
	paidBy, _ := s.item(t, s.orders, id)["charge"].(*types.AttributeValueMemberS)
	if len(charges) != 1 || paidBy == nil || paidBy.Value != charges[0] || receipts != 1 || confirmed != (order.Confirmation{Order: id, Charge: charges[0]}) {
		t.Errorf("the ledger has the charges %q, the order is paid by %+v and has %d receipts, the client got %+v", charges, paidBy, receipts, confirmed)
	}
}

func (s *shop) item(t *testing.T, table, id string) map[string]types.AttributeValue {
	t.Helper()
	out, err := dynamodb.NewFromConfig(s.cfg).GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func newOrder() order.Request {
	return order.Request{Number: rand.Text(), Request: charge.Request{Amount: 4200, Currency: "usd", Customer: "cus_1"}}
}

// The process of an order dies before and after each of its calls: to the store,
// to the provider, and to the mailer. The client sends the order again, and the
// reconciler asks the provider. The order is paid once, written once, and has one
// receipt.
func TestOrder_DiesAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, flow := range []struct {
		operation string
		handler   func(*order.Shop) order.Handler
		calls     int
		unknown   int // deaths after which only the provider knows the outcome
	}{
		{order.InSteps, (*order.Shop).InSteps, 7, 0}, // the claim, the payment and its step, the order, the receipt and its step, the outcome
		{order.AtOnce, (*order.Shop).AtOnce, 3, 4},   // the claim, the payment, the order with the outcome
	} {
		t.Run(flow.operation, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			send := func(r order.Request, wire *mortalWire) (order.Confirmation, error) {
				return flow.handler(s.process(t, wire))(s.clock.Invocation(t.Context(), 30*time.Second), r)
			}
			alive := &mortalWire{}
			if _, err := send(newOrder(), alive); err != nil || alive.calls != flow.calls {
				t.Fatalf("got error %v and %d calls, want %d", err, alive.calls, flow.calls)
			}
			unknown := 0
			for death := range 2 * flow.calls {
				wire := &mortalWire{before: death/2 + 1}
				if death%2 == 1 {
					wire = &mortalWire{after: death/2 + 1}
				}
				r := newOrder()
				record := idempotent.Key{Operation: flow.operation, Scope: r.Customer, ID: r.Number}.RecordID()
				send(r, wire) // a dead process sends no answer
				if !wire.dead {
					t.Fatalf("the process is alive after %d calls", wire.calls)
				}
				s.clock.Advance(time.Minute) // past the lease
				confirmed, err := send(r, &mortalWire{})
				if errors.As(err, new(*idempotent.UnresolvedError)) {
					unknown++
					s.clock.Advance(time.Hour)
					p := s.process(t, &mortalWire{})
					if _, err := idempotent.ReconcileDue(t.Context(), p.Guard, p.Resolve); err != nil {
						t.Fatal(err)
					}
					confirmed, err = send(r, &mortalWire{})
				}
				if err != nil {
					t.Fatalf("call %d, after its reply: %t: the retry got %v", death/2+1, death%2 == 1, err)
				}
				if again, err := send(r, &mortalWire{}); err != nil || again != confirmed {
					t.Errorf("a second retry got %+v, %v; the first got %+v", again, err, confirmed)
				}
				s.books(t, record, confirmed)
				if t.Failed() {
					t.Fatalf("the process died at call %d, after its reply: %t", death/2+1, death%2 == 1)
				}
			}
			if unknown != flow.unknown {
				t.Errorf("%d outcomes were unknown, want %d", unknown, flow.unknown)
			}
		})
	}
}
