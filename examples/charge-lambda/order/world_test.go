package order_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

type item = map[string]types.AttributeValue

// tables implements the part of DynamoDB that the shop and its guard use. A Put
// with :was replaces the record with that write id; every other Put requires that
// there is no item.
type tables struct {
	dynamostore.Client // unused methods
	mu                 sync.Mutex
	items              map[string]item // by table and key
	fail               error           // returned by transactions
}

func (d *tables) refuses(p *types.Put) (standing item, refused bool) {
	standing = d.items[*p.TableName+"/"+p.Item["pk"].(*types.AttributeValueMemberS).Value]
	was, replaces := p.ExpressionAttributeValues[":was"].(*types.AttributeValueMemberB)
	if !replaces {
		return standing, standing != nil
	}
	wid, ok := standing["wid"].(*types.AttributeValueMemberB)
	return standing, !ok || !bytes.Equal(wid.Value, was.Value)
}

func (d *tables) put(p *types.Put) {
	d.items[*p.TableName+"/"+p.Item["pk"].(*types.AttributeValueMemberS).Value] = p.Item
}

func (d *tables) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &types.Put{TableName: in.TableName, Item: in.Item, ExpressionAttributeValues: in.ExpressionAttributeValues}
	if standing, refused := d.refuses(p); refused {
		return nil, &types.ConditionalCheckFailedException{Item: standing}
	}
	d.put(p)
	return &dynamodb.PutItemOutput{}, nil
}

func (d *tables) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &dynamodb.GetItemOutput{Item: d.items[*in.TableName+"/"+in.Key["pk"].(*types.AttributeValueMemberS).Value]}, nil
}

func (d *tables) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	reasons, cancelled := make([]types.CancellationReason, len(in.TransactItems)), false
	for i, t := range in.TransactItems {
		reasons[i].Code = aws.String("None")
		if standing, refused := d.refuses(t.Put); refused {
			reasons[i] = types.CancellationReason{Code: aws.String("ConditionalCheckFailed"), Item: standing}
			cancelled = true
		}
	}
	if cancelled {
		return nil, &types.TransactionCanceledException{CancellationReasons: reasons}
	}
	for _, t := range in.TransactItems {
		d.put(t.Put)
	}
	return &dynamodb.TransactWriteItemsOutput{}, nil
}

// bank is a provider and a mailer. Both honour keys, and fail on request.
type bank struct {
	charges map[string]charge.Charge
	mails   map[string]string
	before  error // fails before the effect
	after   error // fails after the effect
	mail    error
	forgets bool // does not recognise earlier keys
}

func (b *bank) Charge(_ context.Context, key string, _ idempotent.RecordID, r charge.Request) (charge.Charge, error) {
	if b.before != nil {
		return charge.Charge{}, b.before
	}
	if _, made := b.charges[key]; made && b.forgets {
		b.charges[key+" again"] = charge.Charge{ID: "ch_again"}
	} else if !made {
		b.charges[key] = charge.Charge{ID: "ch_" + string(rune('a'+len(b.charges))), Amount: r.Amount, Currency: r.Currency, Customer: r.Customer}
	}
	return b.charges[key], b.after
}

func (b *bank) Find(_ context.Context, key string) (charge.Charge, error) {
	if b.before != nil {
		return charge.Charge{}, b.before
	}
	c, made := b.charges[key]
	if !made {
		return c, charge.ErrNoCharge
	}
	return c, nil
}

func (b *bank) Mail(_ context.Context, key, id string) (string, error) {
	if b.mail != nil {
		return "", b.mail
	}
	b.mails[key] = id
	return "rc_1", nil
}

// world is a shop with all its services.
type world struct {
	*order.Shop
	store  *dynamostore.Store
	tables *tables
	bank   *bank
	clock  *idempotenttest.Clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		tables: &tables{items: map[string]item{}}, clock: &idempotenttest.Clock{},
		bank: &bank{charges: map[string]charge.Charge{}, mails: map[string]string{}},
	}
	store, err := dynamostore.New(w.tables, "records")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Now, o.Logger = w.clock.Now, slog.New(slog.NewTextHandler(io.Discard, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	w.store = store
	w.Shop = &order.Shop{Guard: guard, Client: w.tables, Provider: w.bank, Mailer: w.bank, Orders: "orders", Outbox: "outbox"}
	return w
}

func (w *world) send(t *testing.T, h order.Handler) (order.Confirmation, error) {
	t.Helper()
	return h(w.clock.Invocation(t.Context(), 10*time.Second),
		order.Request{Number: "o-1", Request: charge.Request{Amount: 4200, Currency: "usd", Customer: "cus_1"}})
}

func record(operation string) idempotent.RecordID {
	return idempotent.Key{Operation: operation, Scope: "cus_1", ID: "o-1"}.RecordID()
}

// has reports whether a table has an item of the order.
func (w *world) has(table, operation string) bool {
	w.tables.mu.Lock()
	defer w.tables.mu.Unlock()
	return w.tables.items[table+"/"+order.ID(record(operation))] != nil
}

// resolve resolves an order as the reconciler does.
func (w *world) resolve(t *testing.T, operation string, resolver idempotent.ResolveFunc) error {
	t.Helper()
	r, err := w.store.Get(t.Context(), record(operation))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := resolver(t.Context(), w.Guard.Pending(*r))
	if err != nil {
		return err
	}
	return w.Guard.Resolve(t.Context(), r.ID, answer)
}

var errBroken = errors.New("the connection broke")
