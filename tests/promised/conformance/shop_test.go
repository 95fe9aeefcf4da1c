// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/policy"
)

// timeout is the time-out of a function, by the clock of its shop. A lease lasts
// as long, plus a margin.
const timeout, lease = time.Minute, time.Minute + 3*time.Second

// clock stands still until it is advanced, so that times are exact on a slow
// machine too.
type clock struct {
	began time.Time
	ahead atomic.Int64
}

func (c *clock) now() time.Time          { return c.began.Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// invocation returns the context of a function that is invoked now.
func (c *clock) invocation(ctx context.Context) context.Context {
	return invocation{ctx, c.now().Add(timeout)}
}

type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }

// shop is a small service whose endpoints cost money, behind one front.
// Its records are in DynamoDB in memory, and survive the lives of its process.
type shop struct {
	c      *check
	front  front
	r      *requirement
	db     *dynamotest.DB
	clock  clock
	broken atomic.Bool // the store does not answer
	alive  atomic.Pointer[life]
	api    api
}

// life is one process of a shop.
type life struct {
	*shop
	providerURL string
	version     string // of stored results
	guard       *idempotent.Guard
	routes      http.Handler
	ctx         context.Context // ends with the process
	kill        context.CancelFunc
}

// openShop starts a shop.
func openShop(c *check, f front, r *requirement) *api {
	s := &shop{c: c, front: f, r: r, db: dynamotest.New(table), clock: clock{began: time.Now().Truncate(time.Millisecond)}}
	s.born(func(l *life) {
		if r.unreachable {
			l.providerURL = nowhere
		}
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.alive.Load().serve(w, r) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	c.t.Cleanup(server.Close)
	s.api = api{
		url: server.URL, routes: true,
		document: func() []byte { return s.alive.Load().policy().OpenAPI() },
		settle:   s.settle,
		crash: func(mods ...func(*life)) {
			s.alive.Load().kill()
			s.born(mods...)
		},
		stored:       s.stored,
		now:          s.clock.now,
		advance:      s.clock.advance,
		fingerprints: s.fingerprints,
		breakStore:   s.broken.Store,
		gone:         make(chan struct{}, 1),
		refused:      make(chan struct{}, 1),
	}
	return &s.api
}

const (
	table   = "once"
	nowhere = "http://127.0.0.1:1" // no server listens there
)

// born starts a new process.
func (s *shop) born(mods ...func(*life)) {
	l := &life{shop: s, providerURL: s.c.provider.URL}
	l.ctx, l.kill = context.WithCancel(context.Background())
	s.c.t.Cleanup(l.kill)
	for _, f := range mods {
		f(l)
	}
	store, err := dynamostore.New(s.db, table)
	s.c.must(err)
	l.guard, err = idempotent.New(l.store(store), func(o *idempotent.Options) {
		o.Now, o.Logger, o.ResultVersion = s.clock.now, slog.New(slog.DiscardHandler), l.version
	})
	s.c.must(err)

	mux := http.NewServeMux()
	pay := s.front.serve(l, l.charging(), l.options)
	for _, pattern := range []string{
		"POST /charges", "PATCH /charges", "PUT /charges", "DELETE /charges", "OPTIONS /charges",
		"POST /refunds", "POST /accounts/{id}/charges", "POST /any/{rest...}",
	} {
		mux.Handle(pattern, pay)
	}
	mux.Handle("POST /uploads/{customer}", s.front.serve(l, plain{l.upload}, l.options))
	mux.Handle("GET /charges/{id}", s.front.serve(l, l.reading(), l.options))
	mux.HandleFunc("GET "+page, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, l.policy().Markdown()) })
	mux.HandleFunc("POST /admin/reconcile", l.reconcile)
	l.routes = mux
	s.alive.Store(l)
}

// options are those of every handler of the shop.
func (l *life) options(o *lambdahttp.Options) {
	o.Profile = l.c.profile.Value
	o.Scope = l.front.scope
	o.DocsURL = page
	if l.r.options != nil {
		l.r.options(o)
	}
	if l.r.checked {
		o.BeforeReplay = l.unchanged
	}
}

func (l *life) policy() *policy.Policy { return policy.New(l.guard, l.options) }

// serve serves a request by the shop's clock. If the process dies meanwhile, the
// connection breaks.
func (l *life) serve(w http.ResponseWriter, r *http.Request) {
	defer context.AfterFunc(r.Context(), func() { signal(l.api.gone) })()
	ctx := context.WithValue(r.Context(), pathKey{}, r.URL.Path)
	l.routes.ServeHTTP(w, r.WithContext(l.clock.invocation(ctx)))
	if l.ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

// signal sends a signal, unless one waits to be received.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// order is the body of a request.
type order struct {
	Amount   int64           `json:"amount"`
	Currency string          `json:"currency"`
	Customer string          `json:"customer"`
	Note     json.RawMessage `json:"note,omitempty"`
}

// receipt is the body of a response.
type receipt struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Customer string `json:"customer"`
}

// Customers with these prefixes get special responses.
const (
	failing = "failing_" // 500, after the effect
	secret  = "secret_"  // a response that is not stored
)

func (l *life) charging() lambdahttp.JSON[order, receipt] {
	return lambdahttp.JSON[order, receipt]{
		Check: func(_ context.Context, _ *lambdahttp.Request, o *order) error {
			if o.Amount < 1 {
				return &lambdahttp.Problem{Status: http.StatusBadRequest, Code: "invalid_charge", Detail: "The amount must be at least 1."}
			}
			return nil
		},
		Handle:  l.charge,
		Respond: respond,
	}
}

func respond(r *lambdahttp.Response, out receipt) {
	r.Status = http.StatusCreated
	for name, value := range map[string]string{
		"Location": "/charges/" + out.ID, "Etag": `"1"`, "Cache-Control": "no-store", "Vary": "Accept",
		"Request-Id": rand.Text(), "Stripe-Request-Id": rand.Text(), "X-Charge-Number": rand.Text(),
		"Set-Cookie": "session=" + rand.Text(),
	} {
		r.Header.Set(name, value)
	}
}

func (l *life) charge(ctx context.Context, o order) (receipt, error) {
	if l.r.steps {
		return l.inSteps(ctx, o)
	}
	out, err := l.pay(ctx, o)
	switch {
	case err == nil && strings.HasPrefix(o.Customer, failing):
		return out, &lambdahttp.Problem{Status: http.StatusInternalServerError, Code: "failed", Detail: "The charge was made, and the rest failed."}
	case err == nil && strings.HasPrefix(o.Customer, secret):
		lambdahttp.NoStore(ctx, "Roll the key to get another secret.")
		return out, nil
	case err == nil:
		return out, nil
	case errors.Is(err, errDeclined):
		return out, &lambdahttp.Problem{Status: http.StatusPaymentRequired, Code: "card_declined", Detail: "The card was declined."}
	case errors.Is(err, errNotSent):
		return out, idempotent.NotExecuted(errors.Join(err, &lambdahttp.Problem{Status: http.StatusServiceUnavailable, Code: "provider_unavailable", Detail: "Nothing was charged."}))
	}
	return out, idempotent.Unknown(errors.Join(err, &lambdahttp.Problem{Status: http.StatusBadGateway, Code: "charge_unconfirmed", Detail: "It is not known whether the card was charged."}))
}

// inSteps charges, and then charges the customer's second account.
func (l *life) inSteps(ctx context.Context, o order) (receipt, error) {
	first, err := idempotent.Step(ctx, "charge", func(ctx context.Context) (receipt, error) { return l.pay(ctx, o) })
	if err != nil {
		return receipt{}, err
	}
	o.Customer = second(o.Customer)
	_, err = idempotent.Step(ctx, "second", func(ctx context.Context) (receipt, error) { return l.pay(ctx, o) })
	return first, err
}

// second returns the customer of the second step.
func second(customer string) string { return "second_" + customer }

// upload charges the customer of the path for a document of any kind.
func (l *life) upload(ctx context.Context) (receipt, error) {
	where, _ := ctx.Value(pathKey{}).(string)
	return l.pay(ctx, order{Amount: 100, Currency: "usd", Customer: path.Base(where)})
}

// reading answers for a charge. It has no effect.
func (l *life) reading() lambdahttp.JSON[struct{}, receipt] {
	return lambdahttp.JSON[struct{}, receipt]{Handle: func(ctx context.Context, _ struct{}) (out receipt, err error) {
		where, _ := ctx.Value(pathKey{}).(string)
		return out, l.talk(ctx, "GET", where, "", nil, &out)
	}}
}

// pathKey is the context's key of the path of a request.
type pathKey struct{}

var (
	errDeclined = errors.New("the card was declined")
	errNotSent  = errors.New("the provider cannot be reached")
)

// pay asks the provider for a charge.
func (l *life) pay(ctx context.Context, o order) (out receipt, err error) {
	key := rand.Text() // of a request without a guard
	if _, guarded := idempotent.FromContext(ctx); guarded {
		key = idempotent.DownstreamKey(ctx)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return out, err
	}
	return out, l.talk(ctx, "POST", "/charges", key, body, &out)
}

// talk sends a request to the provider, until the process dies.
func (l *life) talk(ctx context.Context, method, path, key string, body []byte, out any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	req, err := http.NewRequestWithContext(ctx, method, l.providerURL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return errNotSent
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPaymentRequired:
		return errDeclined
	case resp.StatusCode >= 300:
		return fmt.Errorf("the provider answers %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// unchanged refuses the replay of a charge that the provider does not have any more.
func (l *life) unchanged(ctx context.Context, _ *lambdahttp.Request, stored lambdahttp.Response) error {
	var out receipt
	if err := l.talk(ctx, "GET", stored.Header.Get("Location"), "", nil, &out); err != nil {
		return lambdahttp.RefuseReplay("The charge was deleted.")
	}
	return nil
}

// reconcile settles the records that are due, by the provider's books.
func (l *life) reconcile(w http.ResponseWriter, r *http.Request) {
	_, err := kit.Reconcile(r.Context(), l.guard, func(ctx context.Context, p idempotent.PendingRecord) (idempotent.Resolution, error) {
		var found []receipt
		if err := l.talk(ctx, "GET", "/charges?idempotency_key="+url.QueryEscape(p.ID.DownstreamKey()), "", nil, &found); err != nil {
			return idempotent.Resolution{}, err
		}
		if len(found) == 0 {
			return idempotent.ProvenNotExecuted(p.Token), nil
		}
		return l.charging().Resolved(found[0])
	})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// settle waits until the unknown outcomes are due, and has them reconciled.
func (s *shop) settle(string) {
	s.clock.advance(time.Hour)
	s.c.want(s.c.read("POST", "/admin/reconcile", ""), http.StatusOK)
}

func (s *shop) items() []map[string]types.AttributeValue {
	out, err := s.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String(table)})
	s.c.must(err)
	return out.Items
}

func (s *shop) stored() string {
	var b strings.Builder
	for _, item := range s.items() {
		for name, value := range item {
			fmt.Fprintln(&b, name, raw(value))
		}
	}
	return b.String()
}

// raw returns the bytes of a value.
func raw(value types.AttributeValue) string {
	switch v := value.(type) {
	case *types.AttributeValueMemberB:
		return string(v.Value)
	case *types.AttributeValueMemberS:
		return v.Value
	}
	return fmt.Sprint(value)
}

func (s *shop) fingerprints() (all []string) {
	for _, item := range s.items() {
		all = append(all, cmp.Or(raw(item["fp"]), "missing"))
	}
	return all
}

var errDown = errors.New("the store does not answer")

// store returns the store of one process. After its death nothing is written any
// more.
func (l *life) store(s *dynamostore.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if l.ctx.Err() != nil || l.broken.Load() {
			c.Err = errDown
			return
		}
		if c.Do(ctx); c.Op == driver.OpInsert && c.Current != nil {
			signal(l.api.refused)
		}
	})
}
