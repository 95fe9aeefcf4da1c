// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// A state is everything that the future of a schedule depends on, and all that
// the invariants remember. An actor's own state, on its stack, follows from the
// replies that it got. Owner tokens and write ids, which are random, are named
// after the actor that drew them.

type state [16]byte

// state returns a digest of the state: 128 bits, so that a collision is less
// likely than a bit flip in memory.
func (w *world) state() state {
	sum := sha256.Sum256(w.encode(make([]byte, 0, 512)))
	return state(sum[:])
}

func (w *world) encode(b []byte) []byte {
	b = append(b, byte(w.ticks))
	b = w.encodeRecord(b, w.record)
	if w.scenario.Neighbours > 0 {
		other, _ := w.kept.Get(context.Background(), elsewhereID)
		b = w.encodeRecord(b, other)
	}
	for _, a := range w.actors {
		b = a.encode(b)
	}
	b = append(b, byte(len(w.flights)))
	for _, f := range w.flights {
		b = append(b, f.from.index)
		b = w.encodeCall(b, &f.call)
	}
	for _, g := range w.generations {
		switch {
		case g.harmless && w.once() || w.dedupes():
			b = append(b, 'r', byte(g.effects))
		case g.harmless:
			b = append(b, 'r')
		default:
			b = append(b, byte(g.entries-g.retryable), byte(g.effects))
		}
		if w.dedupes() {
			b = moment(append(b, byte(g.orders), bit(g.open)), g.charged)
		}
		if w.scenario.Foreign {
			b = append(b, byte(g.recovery), byte(g.retention/retention))
		}
		b = text(text(text(b, g.acked), g.finder), g.discarded)
	}
	return b
}

func (a *actor) encode(b []byte) []byte {
	if a.effect == sent {
		b = moment(append(b, 's', byte(a.gen)), a.leaseEnd)
	}
	turn := byte(0)
	if !a.w.allOrders && a.turnSteps(a.w.faults < a.w.scenario.Faults) != nil {
		turn = 1
	}
	switch {
	case a.phase == idle:
		return append(b, 'i', turn, bit(!a.fired.IsZero()))
	case a.gone() && a.announcer != nil && a.announcer.active():
	case a.gone():
		return append(b, 'g', bit(a.denied)) // no reply changes what it does
	}
	b = append(b, byte(a.phase), turn, byte(a.gen), byte(a.effect), bit(a.open), bit(a.call.resent), bit(a.denied))
	if a.phase == waiting {
		b = a.encodeReply(b)
	}
	if a.run != nil {
		return a.w.encodeCall(b, &a.call)
	}
	b = text(text(b, a.promised), a.applied)
	b = binary.AppendUvarint(b, uint64(len(a.told)))
	return append(b, a.told...)
}

// Records a reply to an actor, and its time.
func (a *actor) tell(what ...byte) {
	a.told = append(append(a.told, byte(a.w.ticks)), what...)
}

func (a *actor) tellReply() {
	p := a.process()
	p.tell('r', bit(a.run != nil))
	p.told = a.encodeReply(p.told)
}

func (a *actor) encodeReply(b []byte) []byte {
	switch {
	case errors.Is(a.reply.err, idempotent.ErrNoRecord):
		return append(b, 'n')
	case a.reply.err != nil:
		return append(b, 'e')
	}
	return a.w.encodeRecord(b, a.reply.record)
}

func (w *world) encodeCall(b []byte, c *call) []byte {
	b = append(b, byte(c.kind))
	b = w.version(b, c.was)
	if c.kind == insert {
		b = moment(b, c.now)
	}
	return w.encodeRecord(b, &c.record)
}

// encodeRecord leaves out what no decision depends on: reasons, request ids, and
// times that are only for display or that only say how long to wait.
func (w *world) encodeRecord(b []byte, r *driver.Record) []byte {
	if r == nil {
		return append(b, 0)
	}
	b = append(b, byte(r.State), bit(r.Announced), byte(r.Recovery), byte(r.Attempt), r.Fingerprint[1])
	b = w.version(b, r.Version)
	owner := byte(0xff)
	for _, a := range w.actors {
		if a.owner == r.Owner {
			owner = a.index
		}
	}
	b = append(b, owner)
	b = moment(moment(b, r.LeaseEnd), r.Expires)
	if r.Recovery == idempotent.Resume {
		b = moment(b, r.OpenSince)
	}
	if w.scenario.Foreign {
		b = append(b, byte(r.Retention/retention))
	}
	for _, s := range r.Steps {
		b = append(b, bit(r.Reason == driver.ReasonUnknown)) // what evidence about the step releases
		b = append(b, s.Mode.Code()...)
		b = append(b, byte(s.By))
		if s.Finished {
			b = text(append(b, 'f'), string(s.Result))
		}
	}
	return text(text(b, r.Encoding), string(r.Result))
}

func (w *world) version(b []byte, v driver.Version) []byte {
	n := w.names[v]
	return append(b, n.actor, n.n)
}

func moment(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMilli()))
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func text(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
