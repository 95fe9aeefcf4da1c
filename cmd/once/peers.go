package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
)

// peers is what the other records of an operation say about how its results
// are stored. A resolution that differs from them would be kept and could never
// be replayed, and nothing takes it back.
type peers struct {
	operation string
	seen      int           // how many were looked at; 0: nothing is known
	encoding  string        // of the result that was stored last
	version   string        // its Options.ResultVersion
	retention time.Duration // how long it is kept
	newest    time.Time
}

const (
	// enoughPeers is how many are looked at.
	enoughPeers = 50
	// peerUnits bounds what the look costs: 1,000 read units are 8 MB, and about
	// a hundredth of a cent.
	peerUnits = 1000
)

// peersOf looks at other records of an operation. It is a help and no
// condition: where the store cannot be read it returns what it has seen.
func (o *opened) peersOf(ctx context.Context, operation string) *peers {
	p := &peers{operation: operation}
	var units atomic.Int64
	for r, err := range o.all(ctx, func(s dynamostore.ScanProgress) { units.Store(int64(s.ReadUnits)) }) {
		if err != nil && r.ID == "" || p.seen >= enoughPeers || units.Load() >= peerUnits {
			break
		}
		if err == nil && r.ID.Operation() == operation {
			p.note(&r)
		}
	}
	return p
}

// note looks at a record. The outcomes that look alike in all encodings, and
// those that came from a command line, say nothing.
func (p *peers) note(r *driver.Record) {
	if r.State != driver.StateCompleted || r.Reason == driver.ReasonResolved ||
		r.Encoding == driver.EncodingFinal || r.Encoding == driver.EncodingOmitted {
		return
	}
	p.seen++
	if r.Settled.Before(p.newest) {
		return
	}
	p.newest = r.Settled
	p.encoding, p.version = unpacked(r.Encoding), r.ResultVersion
	if !r.Expires.IsZero() {
		p.retention = r.Expires.Sub(r.Settled)
	}
}

// contradict says where a result differs from those of the operation's other
// records, or nothing.
func (p *peers) contradict(ev *evidence, version string) error {
	if p.seen == 0 || ev.encoding == "" {
		return nil
	}
	if ev.encoding != p.encoding {
		hint := "--encoding " + p.encoding
		if p.encoding == "http1" {
			hint = "--http --status, and --header where it needs one"
		}
		return refuse("the other records of %s hold results as %s and this one is given as %s, which retries could not be answered with; say %s (or --force)",
			oneLine(p.operation), p.encoding, ev.encoding, hint)
	}
	if version != p.version {
		return refuse("the other records of %s hold results of version %q and this one is given as version %q, which retries could not be answered with; say --result-version %s (or --force)",
			oneLine(p.operation), p.version, version, shell(p.version))
	}
	return nil
}

// describe says for people how sure the form of a result is.
func (p *peers) describe(ev *evidence) string {
	switch {
	case p.seen == 0 && ev.encoding == jsonEncoding:
		return "for idempotent.Wrap and Do; a handler behind lambdahttp wants --http.\nNo other record of the operation was found to compare with."
	case p.seen == 0:
		return "No other record of the operation was found to compare with."
	}
	return fmt.Sprintf("as %s of the operation", count(p.seen, "other record"))
}
