// SPDX-License-Identifier: Apache-2.0

package orders

import "errors"

// Order is the body of a message.
type Order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int    `json:"amount"` // in cents
}

// errInvalid is the error for a message that can never succeed. The message
// goes to the dead-letter queue, where a person can look at it.
var errInvalid = errors.New("orders: invalid order: id, customer, SKU, quantity and amount are required")

func (o Order) check() error {
	if o.ID == "" || o.Customer == "" || o.SKU == "" || o.Quantity < 1 || o.Amount < 1 {
		return errInvalid
	}
	return nil
}
