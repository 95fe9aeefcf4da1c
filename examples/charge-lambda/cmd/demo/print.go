package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent/driver"
)

// table prints rows with aligned columns.
func table(w io.Writer, rows func(row func(cells ...any))) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.TabIndent)
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, c)
		}
		fmt.Fprintln(t)
	})
	return t.Flush()
}

// printFlow prints the state after each kill of a flow, and its end.
func printFlow(w io.Writer, f flow, fates []*fate) error {
	fmt.Fprintf(w, "\n%s\n\n", f.about)
	return table(w, func(row func(...any)) {
		row("KILLED", "THEN", f.kept, "RUNS", "PAID", "ORDERS", f.receipts, "NOW")
		for _, x := range fates {
			b := x.books
			row(x.moment, stateOf(x.left), keptOf(f, x.left), b.record.Attempt, len(b.charges), len(b.paidBy), b.receipts, b.record.State)
		}
	})
}

func stateOf(r *driver.Record) string {
	if r == nil {
		return "none"
	}
	return r.State.String()
}

// keptOf returns what a killed run left: its finished steps, or whether there is
// an outcome.
func keptOf(f flow, r *driver.Record) string {
	switch {
	case r == nil || r.State == driver.StateCompleted:
		return "outcome"
	case f.operation == order.AtOnce:
		return "claim"
	}
	return fmt.Sprintf("%d of 3", len(r.Steps))
}

// printBooks prints the state of every order in each system.
func printBooks(w io.Writer, fates []*fate) error {
	fmt.Fprint(w, "\nThe ledger, the order table and the record of each order:\n\n")
	err := table(w, func(row func(...any)) {
		row("ORDER", "IN THE LEDGER", "PAID BY", "IN THE RECORD")
		for _, x := range fates {
			b := x.books
			row(b.order, short(b.charges[0]), short(b.paidBy[0]), short(b.stored.Charge))
		}
	})
	fmt.Fprintf(w, "\n%d kills, %d orders: each is paid once, written once, and has one receipt.\n", len(fates), len(fates))
	return err
}

// short shortens a charge's id.
func short(id string) string { return id[:min(len(id), 15)] + "…" }
