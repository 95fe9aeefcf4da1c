package main

import (
	"fmt"

	"github.com/once-lambda/once/examples/charge-lambda/order"
)

// flow is a way to take an order, and the moments at which the demo kills it.
type flow struct {
	operation string
	about     string
	kept      string // heading of the state after the kill
	receipts  string // heading of the receipts
	moments   []string
	handler   func(*order.Shop) order.Handler
}

// The moments. After means that the effect has happened, but the process does
// not know it yet.
const (
	beforePayment = "before the payment"
	afterPayment  = "after the payment"
	beforeOrder   = "before the order"
	afterOrder    = "after the order"
	beforeReceipt = "before the receipt"
	afterReceipt  = "after the receipt"
	beforeAnswer  = "before the answer"
)

var flows = []flow{
	{
		operation: order.InSteps,
		about: `Resume: payment, order and receipt are steps.
The next request continues where the killed one stopped.`,
		kept: "STEPS", receipts: "MAILED",
		moments: []string{beforePayment, afterPayment, beforeOrder, afterOrder, beforeReceipt, afterReceipt, beforeAnswer},
		handler: (*order.Shop).InSteps,
	},
	{
		operation: order.AtOnce,
		about: `Reconcile: the payment, and then everything else in one transaction.
A kill in between leaves an unknown outcome. The reconciler asks the provider.`,
		kept: "LEFT", receipts: "TO MAIL",
		moments: []string{beforePayment, afterPayment, beforeOrder, afterOrder, beforeAnswer},
		handler: (*order.Shop).AtOnce,
	},
}

func flowOf(operation string) (flow, error) {
	for _, f := range flows {
		if f.operation == operation {
			return f, nil
		}
	}
	return flow{}, fmt.Errorf("unknown operation %q", operation)
}
