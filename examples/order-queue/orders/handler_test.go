// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
)

// message is a message of the queue with an order for two cups.
func message(id string) events.SQSEvent {
	return events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: id, ReceiptHandle: "receipt of " + id, EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:orders",
		Body: `{"order_id":"o-1","customer":"c-1","sku":"cup","quantity":2,"amount":1250}`,
	}}}
}

// newStore returns a store beside the table of a shop with that many cups.
func newStore(t *testing.T, cups int) (*dynamostore.Store, *dynamotest.DB) {
	t.Helper()
	db := dynamotest.New("once", "shop")
	if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: aws.String("shop"), Item: item{"pk": text("stock#cup"), "available": number(cups)},
	}); err != nil {
		t.Fatal(err)
	}
	store, err := dynamostore.New(db, "once")
	if err != nil {
		t.Fatal(err)
	}
	return store, db
}

// payments is a provider without HTTP.
type payments struct{ *kit.Provider }

func (p payments) Charge(_ context.Context, key, _ string, _ int) (Charge, error) {
	return Charge{ID: p.Provider.Charge(key)}, nil
}

// An order is taken, but SQS gets no answer, and its message ends in the
// dead-letter queue. When it is redriven, with another id and a new retention, the
// order is not taken again: neither after five days nor at the end of the longest
// time that a queue with the default retention and any dead-letter queue allows.
func TestARedrivenOrderIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, after := range []time.Duration{5 * day, 4*day + 14*day + 4*day} {
		store, _ := newStore(t, 10)
		var clock idempotenttest.Clock
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now, o.Logger = clock.Now, slog.New(slog.DiscardHandler) })
		if err != nil {
			t.Fatal(err)
		}
		provider := &kit.Provider{Known: day, Now: clock.Now}
		h := New(guard, "shop", payments{provider}, nil)
		for _, id := range []string{"m-1", "redriven"} {
			response, err := h(clock.Invocation(t.Context(), 30*time.Second), message(id))
			if err != nil || len(response.BatchItemFailures) != 0 {
				t.Fatalf("%s: got %+v, %v", id, response, err)
			}
			clock.Advance(after)
		}
		provider.Once(t, 1)
	}
}

// An order for two cups is taken if there are two. If there is one, it is refused for
// good: nothing is charged, and the message is acknowledged.
func TestTheLastCups(t *testing.T) {
	t.Parallel()
	for cups, want := range map[int]struct{ charges, left int }{2: {1, 0}, 1: {0, 1}} {
		store, db := newStore(t, cups)
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
		if err != nil {
			t.Fatal(err)
		}
		var provider kit.Provider
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		response, err := New(guard, "shop", payments{&provider}, nil)(ctx, message("m-1"))
		if err != nil || len(response.BatchItemFailures) != 0 || provider.Charges() != want.charges {
			t.Errorf("%d cups: got %+v, %v, and %d charges, want %d", cups, response, err, provider.Charges(), want.charges)
		}
		out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("shop"), Key: item{"pk": text("stock#cup")}})
		if err != nil || !reflect.DeepEqual(out.Item["available"], number(want.left)) {
			t.Errorf("%d cups: %v are left (%v), want %d", cups, out.Item, err, want.left)
		}
	}
}

// during is a provider that calls a function while it makes a charge.
type during func()

func (d during) Charge(context.Context, string, string, int) (Charge, error) {
	d()
	return Charge{ID: "ch_1"}, nil
}

// A message that is delivered while its order is being taken is hidden until the
// lease of that run ends: the SDK sends what SQS expects. The order is claimed under
// Resume: under Rerun the record of a dead process would be on no list and would
// expire, although the customer may be charged without an order.
func TestAnOrderThatIsBeingTaken(t *testing.T) {
	t.Parallel()
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests = append(requests, r.Header.Get("X-Amz-Target")+" "+string(body))
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	queue := sqs.New(sqs.Options{BaseEndpoint: &server.URL, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")})

	store, _ := newStore(t, 10)
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	var h HandlerFunc
	h = New(guard, "shop", during(func() {
		response, err := h(t.Context(), message("m-2"))
		if err != nil || len(response.BatchItemFailures) != 1 {
			t.Errorf("got %+v, %v", response, err)
		}
		claims := 0
		for r, err := range store.Scan(t.Context()) {
			if claims++; err != nil || r.Recovery != idempotent.Resume || !slices.Equal(r.StepNames, []string{"reserve", "charge", "give-back"}) || !r.Expires.IsZero() {
				t.Errorf("the claim declares %s with the steps %q, and expires %s (%v)", r.Recovery, r.StepNames, r.Expires, err)
			}
		}
		if claims != 1 {
			t.Errorf("%d records, want the claim", claims)
		}
	}), queue)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	response, err := h(ctx, message("m-1"))
	if err != nil || len(response.BatchItemFailures) != 0 {
		t.Errorf("got %+v, %v", response, err)
	}
	want := regexp.MustCompile(`^AmazonSQS\.ChangeMessageVisibility \{"QueueUrl":"https://sqs\.us-east-1\.amazonaws\.com/123456789012/orders","ReceiptHandle":"receipt of m-2","VisibilityTimeout":3[0-3]\d\}$`)
	if len(requests) != 1 || !want.MatchString(requests[0]) {
		t.Errorf("SQS got %q", requests)
	}
}

func TestProvider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		reply  string
		want   Charge
		fails  bool
	}{
		{201, `{"id":"ch_1"}`, Charge{ID: "ch_1"}, false},
		{201, `{}`, Charge{}, true},
		{201, `<html>`, Charge{}, true},
		{402, `{"code":"card_declined"}`, Charge{Declined: true}, false},
		{500, `{"id":"ch_1"}`, Charge{}, true},
		{200, `{"id":"ch_1"}`, Charge{}, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/charges" || r.Header.Get("Idempotency-Key") != "key" || string(body) != `{"amount":1250,"currency":"eur","customer":"c-1"}` {
				t.Errorf("the provider got %s %s %s", r.URL.Path, r.Header, body)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.reply)
		}))
		p, err := NewProvider(server.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Charge(t.Context(), "key", "c-1", 1250)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("status %d, %s: got %+v %v", c.status, c.reply, got, err)
		}
		server.Close()
		if _, err := p.Charge(t.Context(), "key", "c-1", 1250); err == nil {
			t.Error("an unreachable provider made a charge")
		}
	}
	if _, err := NewProvider("pay.example.com"); err == nil {
		t.Error("an address without a scheme was accepted")
	}
}

func TestOrdersAreChecked(t *testing.T) {
	t.Parallel()
	good := Order{ID: "o-1", Customer: "c-1", SKU: "cup", Quantity: 1, Amount: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Order){
		func(o *Order) { o.ID = "" }, func(o *Order) { o.Customer = "" }, func(o *Order) { o.SKU = "" },
		func(o *Order) { o.Quantity = 0 }, func(o *Order) { o.Amount = -1 },
	} {
		bad := good
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// F46, G04: wherever the function is killed, and whatever is lost, the goods leave the stock
// once, the customer is charged once, and there is one order. If the customer cannot pay, the
// goods are given back once.
func TestEveryCrash(t *testing.T) {
	for name, declines := range map[string]bool{"paid": false, "declined": true} {
		t.Run(name, func(t *testing.T) {
			idempotenttest.Explore(t, func(w *idempotenttest.World) {
				bank := &kit.Provider{}
				w.Provider(bank)
				db := shop(w)
				if declines {
					bank.Before = func(*http.Request) int { return http.StatusPaymentRequired }
					w.ExactlyOnce("two cups beyond eight", func() int { return (cups(db) - 8) / 2 })
				} else {
					w.ExactlyOnce("charge", bank.Charges)
					w.ExactlyOnce("order", func() int { return min(1, len(get(db, "order#o-1"))) })
					w.ExactlyOnce("two cups taken", func() int { return (10 - cups(db)) / 2 })
				}
				idempotenttest.Handle(w, message("m-1"), func(g *idempotent.Guard) HandlerFunc {
					return New(g, "shop", Provider("http://bank.test"), nil)
				})
			}, func(o *idempotenttest.ExploreOptions) { o.Schedules = kit.Short(1000, 200) })
		})
	}
}

// shop returns the database of a shop with ten cups.
func shop(w *idempotenttest.World) dynamostore.Client {
	db := dynamotest.In(w, "once", []string{"shop"})
	if _, err := db.PutItem(context.Background(), &dynamodb.PutItemInput{
		TableName: aws.String("shop"), Item: item{"pk": text("stock#cup"), "available": number(10)},
	}); err != nil {
		panic(err)
	}
	return db
}

func get(db dynamostore.Client, key string) item {
	out, err := db.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("shop"), Key: item{"pk": text(key)}})
	if err != nil {
		panic(err)
	}
	return out.Item
}

func cups(db dynamostore.Client) int {
	n, err := strconv.Atoi(get(db, "stock#cup")["available"].(*types.AttributeValueMemberN).Value)
	if err != nil {
		panic(err)
	}
	return n
}
