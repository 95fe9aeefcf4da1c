package orders

import "errors"

// Order is what a message asks for.
type Order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int    `json:"amount"` // in cents
}

// errInvalid: what a sender gets wrong it gets wrong again. The message goes to
// the dead-letter queue, where somebody looks at it.
var errInvalid = errors.New("orders: an order wants an id, a customer, a SKU, a quantity and an amount")

func (o Order) check() error {
	if o.ID == "" || o.Customer == "" || o.SKU == "" || o.Quantity < 1 || o.Amount < 1 {
		return errInvalid
	}
	return nil
}
