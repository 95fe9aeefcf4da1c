package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/examples/charge-lambda/provider"
	"github.com/once-lambda/once/examples/charge-lambda/receipt"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// books is the state of one order in all systems.
type books struct {
	order    string
	charges  []string // in the provider's ledger
	paidBy   []string // the charge in the order table's item
	receipts int      // mailed, or in the outbox
	record   *driver.Record
	stored   order.Confirmation // in the record
}

// look reads the state of an order from all systems. A contradiction is an
// error.
func (d *demo) look(ctx context.Context, id idempotent.RecordID, told order.Confirmation) (b books, err error) {
	b.order = order.ID(id)
	if b.record, err = d.store.Get(ctx, id); err != nil {
		return b, err
	}
	_, data, err := d.shop.Guard.StoredOutcome(ctx, *b.record)
	if err == nil {
		err = json.Unmarshal(data, &b.stored)
	}
	if err != nil {
		return b, err
	}
	for _, read := range []func(context.Context, idempotent.RecordID) error{b.readLedger(d), b.readOrders(d), b.readReceipts(d)} {
		if err := read(ctx, id); err != nil {
			return b, err
		}
	}
	if len(b.charges) != 1 || len(b.paidBy) != 1 || b.receipts != 1 {
		return b, fmt.Errorf("%d charges, %d orders and %d receipts, want one of each", len(b.charges), len(b.paidBy), b.receipts)
	}
	if want := (order.Confirmation{Order: b.order, Charge: b.charges[0]}); told != want || b.stored != want || b.paidBy[0] != want.Charge {
		return b, fmt.Errorf("the client has %+v, the record %+v, the order %s, and the ledger %+v", told, b.stored, b.paidBy[0], want)
	}
	return b, nil
}

// readLedger finds the charges that name the record.
func (b *books) readLedger(d *demo) func(context.Context, idempotent.RecordID) error {
	return func(ctx context.Context, id idempotent.RecordID) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.services+"/provider/charges", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var ledger []provider.Charge
		if err := json.NewDecoder(resp.Body).Decode(&ledger); err != nil {
			return err
		}
		for _, c := range ledger {
			if c.Metadata["record"] == string(id) {
				b.charges = append(b.charges, c.ID)
			}
		}
		return nil
	}
}

func (b *books) readOrders(d *demo) func(context.Context, idempotent.RecordID) error {
	return func(ctx context.Context, _ idempotent.RecordID) error {
		item, err := d.item(ctx, d.shop.Orders, b.order)
		if charge, ok := item["charge"].(*types.AttributeValueMemberS); ok {
			b.paidBy = append(b.paidBy, charge.Value)
		}
		return err
	}
}

// readReceipts counts the receipts that were mailed or wait in the outbox.
func (b *books) readReceipts(d *demo) func(context.Context, idempotent.RecordID) error {
	return func(ctx context.Context, _ idempotent.RecordID) error {
		mailed, err := (&receipt.Client{Base: d.services + "/mail"}).Mailed(ctx)
		if err != nil {
			return err
		}
		for _, m := range mailed {
			if m.Order == b.order {
				b.receipts++
			}
		}
		item, err := d.item(ctx, d.shop.Outbox, b.order)
		if item != nil {
			b.receipts++
		}
		return err
	}
}

// item returns an item of a table, or nil.
func (d *demo) item(ctx context.Context, table, key string) (map[string]types.AttributeValue, error) {
	out, err := d.shop.Client.(*haltingClient).GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(table), ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key}},
	})
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}
