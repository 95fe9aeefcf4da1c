package main

import (
	"fmt"

	"github.com/once-lambda/once/examples/charge-lambda/order"
)

// flow is a way to take an order, and the moments at which it is killed.
type flow struct {
	operation string
	about     string
	kept      string // title of what outlives the kill
	receipts  string // title of what comes of the receipt
	moments   []string
	handler   func(*order.Shop) order.Handler
}

// The moments. After means that it has happened, and that the process has not
// heard of it yet.
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
The next request goes on where the one that was killed stopped.`,
		kept: "STEPS", receipts: "MAILED",
		moments: []string{beforePayment, afterPayment, beforeOrder, afterOrder, beforeReceipt, afterReceipt, beforeAnswer},
		handler: (*order.Shop).InSteps,
	},
	{
		operation: order.AtOnce,
		about: `Reconcile: the payment, and then all else in one transaction.
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
	return flow{}, fmt.Errorf("there is no operation %q", operation)
}
