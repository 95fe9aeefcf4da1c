// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/guard/model"
)

// storeCall is one call to a store, storeReply the store's answer. Versions are
// small numbers here.
type storeCall struct {
	kind string // "insert", "replace", "get"
	slot model.Slot
	now  int64 // of insert
	was  int   // of replace
}

type storeReply struct {
	met  int // the current version; 0: the write was done
	gone bool
	err  string
}

// slotState is a slot, and how many operations have read it.
type slotState struct {
	model.Slot
	read int
}

// ofSlot returns the search for an order of h that Slot allows.
func ofSlot(h *history) puzzle {
	operations, readers := inTurns(h, func(o porcupine.Operation) (version int, wrote, met bool) {
		in, out := o.Input.(storeCall), o.Output.(storeReply)
		if out == (storeReply{}) {
			return in.slot.Version, true, false
		}
		return out.met, false, true
	})
	tries := &atomic.Int64{}
	return puzzle{operations: operations, tries: tries, model: porcupine.Model{
		Init: func() any { return slotState{} },
		Step: func(state, input, output any) (bool, any) {
			tries.Add(1)
			s, in, out := state.(slotState), input.(turn), output.(storeReply)
			next, want := in.input.(storeCall).apply(s.Slot)
			switch {
			case out != want:
				return false, nil
			case out.met != 0 || out.gone:
				read, ok := in.reads(s.read)
				return ok, slotState{next, read}
			}
			return s.read == readers[s.Version], slotState{Slot: next}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input.(turn).input, output) },
	}}
}

func (c storeCall) apply(s model.Slot) (next model.Slot, said storeReply) {
	next = s
	switch c.kind {
	case "insert":
		next, said.met = s.Insert(c.slot, c.now)
	case "replace":
		next, said.met, said.gone = s.Replace(c.slot, c.was)
	default:
		said = storeReply{met: s.Version, gone: s.Version == 0}
	}
	return next, said
}

// Every store answers concurrent calls as if they had come one after another,
// also if replies get lost and calls are sent again.
func TestStoresAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		open func(testing.TB) driver.Store
		load load
		want int // operations
	}{
		{"memory", memory, load{rounds: 50, goroutines: 64, each: 33, keys: 16}, 100_000},
		{"bolt", bolt, load{rounds: 1, goroutines: 64, each: 64, keys: 16}, 4_000},
		{"TwoRegions", global, load{rounds: 5, goroutines: 64, each: 33, keys: 16}, 10_000},
		{"DynamoDBLocal", dynamo, load{rounds: 1, goroutines: 64, each: 80, keys: 16}, 5_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seen := &kit.Tally{}
			c.load.searchAll(t, ofSlot, c.want, func(round int) []*history {
				return newClients(c.open(t), c.load, seen).run(round)
			})
			t.Log(seen)
			seen.Least(t, c.want/100, "insert done", "insert refused", "replace done", "replace refused", "get", "lost replies")
		})
	}
}

// clients are goroutines that call a store with few keys. Each inserts, reads,
// and replaces the version that it read last, so that most of them are late.
type clients struct {
	load
	store driver.Store
	mark  string
	seen  *kit.Tally

	stamps   stamps
	versions atomic.Int64
	last     [][]int // by client and key: the version that it read last
}

func newClients(s driver.Store, l load, seen *kit.Tally) *clients {
	c := &clients{load: l, store: network(s), mark: cryptorand.Text(), seen: seen, last: make([][]int, l.goroutines)}
	for i := range c.last {
		c.last[i] = make([]int, l.keys)
	}
	return c
}

func (c *clients) run(round int) []*history { return c.load.run(round, c.step) }

// step is one call of one client.
func (c *clients) step(client int, r *rand.Rand, key int, h *history) {
	sender := &caller{delays: sometimes(r, 2), loses: sometimes(r, 16)}
	last := &c.last[client][key]
	in := c.choose(r, *last)
	from := c.stamps.next()
	yield(r)
	out := c.call(sender, key, in)
	yield(r)
	to := c.stamps.next()
	h.add(client, in, from, out, to)
	for range sender.overtaken {
		h.add(client, in, from, storeReply{}, to)
	}
	c.seen.Add("lost replies", sender.lost)
	c.seen.Add("overtaken", len(sender.overtaken))
	switch {
	case in.kind == "get":
		c.seen.Add("get", 1)
	case out == storeReply{}:
		c.seen.Add(in.kind+" done", 1)
		*last = in.slot.Version
	default:
		c.seen.Add(in.kind+" refused", 1)
	}
	if out.met != 0 {
		*last = out.met
	}
}

// choose draws the next call. Times are drawn too: the store has no clock, but
// gets the time of an insert.
func (c *clients) choose(r *rand.Rand, last int) storeCall {
	in := storeCall{kind: "get"}
	kind := r.IntN(10)
	if kind < 2 {
		return in
	}
	in.slot.Version = int(c.versions.Add(1))
	if kind < 5 {
		in.kind, in.now = "insert", 1+r.Int64N(1000)
	} else {
		in.kind, in.was = "replace", last
	}
	if r.IntN(2) == 0 {
		in.slot.Expires = in.now + 1 + r.Int64N(500)
	}
	return in
}

func (c *clients) call(sender *caller, key int, in storeCall) storeReply {
	ctx := sender.invocation(began.Add(requestTimeout))
	id := idempotent.Key{Operation: "linear", Scope: c.mark, ID: fmt.Sprint(key)}.RecordID()
	var met *driver.Record
	var err error
	switch in.kind {
	case "insert":
		met, err = c.store.Insert(ctx, record(id, in.slot), storeTime(in.now))
	case "replace":
		met, err = c.store.Replace(ctx, record(id, in.slot), version(in.was))
	default:
		met, err = c.store.Get(ctx, id)
	}
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return storeReply{gone: true}
	case err != nil:
		return storeReply{err: err.Error()}
	case met == nil:
		return storeReply{}
	}
	stands := int(binary.BigEndian.Uint64(met.Version[:]))
	if want := record(id, model.Slot{Version: stands}); met.Owner != want.Owner || string(met.Result) != string(want.Result) {
		return storeReply{err: fmt.Sprintf("version %d has the content of another", stands)}
	}
	if stands == in.slot.Version { // the client's own write, whose reply was lost
		return storeReply{}
	}
	return storeReply{met: stands}
}

func version(n int) (v driver.Version) {
	binary.BigEndian.PutUint64(v[:], uint64(n))
	return v
}

func storeTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return began.Add(span(ms))
}

// record returns a record whose content depends on its version.
func record(id idempotent.RecordID, s model.Slot) driver.Record {
	r := driver.Record{
		ID: id, State: driver.StateCompleted, Reason: driver.ReasonResult,
		Version: version(s.Version), Attempt: 1, Expires: storeTime(s.Expires), Created: began, Since: began, LeaseEnd: began,
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
		Encoding:    "json", Result: fmt.Appendf(nil, "%d", s.Version),
	}
	binary.BigEndian.PutUint64(r.Owner[:], ^uint64(s.Version))
	return r
}
