// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
)

// report is the result of a search.
type report struct {
	schedules int // that were run, to their end, or into a state that was seen before
	ends      int // distinct tables at the end
	shown     map[string]int
	broken    string   // the rule that a schedule breaks
	trace     []string // that schedule
}

// search runs the schedules of a scenario, or those up to the first that breaks a
// rule. It must run in a bubble of synctest, where no time passes.
type search struct {
	*scenario
	report
	items   []item
	transit *dynamodb.PutItemInput
	now     time.Time
	seen    map[[sha256.Size]byte]bool
	ended   map[string]bool
	open    [][]step // the beginnings of schedules that are still to be run
}

func run(s *scenario) report {
	items, transit, now := abandoned(s)
	x := &search{scenario: s, items: items, transit: transit, now: now, seen: map[[sha256.Size]byte]bool{}, ended: map[string]bool{}, open: [][]step{nil}}
	x.shown = map[string]int{}
	for len(x.open) > 0 && x.broken == "" {
		last := len(x.open) - 1
		schedule := x.open[last]
		x.open = x.open[:last]
		x.one(schedule)
	}
	x.report.ends = len(x.ended)
	return x.report
}

// one runs the schedule with this beginning, and then takes the first step at
// every turn. It leaves the other steps for later runs.
func (x *search) one(schedule []step) {
	w := newWorld(x.scenario, x.items, x.transit, x.now)
	x.schedules++
	for _, s := range schedule {
		w.perform(s)
	}
	for !w.ended && w.broken == "" {
		if state := w.state(); x.seen[state] {
			break
		} else {
			x.seen[state] = true
		}
		next := w.steps()
		for _, alternative := range slices.Backward(next[1:]) {
			x.open = append(x.open, append(slices.Clip(schedule), alternative))
		}
		schedule = append(slices.Clip(schedule), next[0])
		w.perform(next[0])
	}
	if w.ended {
		x.ended[w.table()] = true
	}
	for fact := range w.facts {
		x.shown[fact]++
	}
	x.broken, x.trace = w.broken, w.trace
	for _, a := range w.actors {
		if !a.gone {
			a.goOn(kill)
		}
	}
}

// step is what happens next.
type step struct {
	actor int // -1: to the world
	deed  deed
}

// steps returns what may happen next. The steps without a fault come first.
func (w *world) steps() (next []step) {
	var faults []step
	for i, a := range w.actors {
		if a.gone {
			continue
		}
		next = append(next, step{i, serve})
		faults = append(faults, step{i, loseRequest})
		if strings.HasPrefix(a.next, "write") { // before a read, a kill is a kill before the next write
			faults = append(faults, step{i, loseReply}, step{i, sendTwice}, step{i, kill})
		}
	}
	if len(next) == 0 {
		next = []step{{-1, finish}}
	} else if slices.ContainsFunc(w.actors, func(a *actor) bool { return a.holds || strings.HasPrefix(a.next, "write") }) {
		faults = append(faults, step{-1, wait})
	}
	if w.fault {
		return next
	}
	return append(next, append(faults, step{-1, damage}, step{-1, predate})...)
}

func (w *world) perform(s step) {
	w.fault = w.fault || s.deed != serve && s.deed != finish
	if s.actor >= 0 {
		a := w.actors[s.actor]
		w.trace = append(w.trace, a.name+": "+a.next+" "+string(s.deed))
		a.goOn(s.deed)
		return
	}
	w.trace = append(w.trace, string(s.deed))
	switch s.deed {
	case finish:
		w.end()
		return
	case wait:
		w.now = w.now.Add(reserved)
	case damage:
		w.change("next", 7)
	case predate:
		w.change("began", w.now.Add(2*every).UnixMilli())
	}
	w.excused = true
}

// change changes an attribute of the position.
func (w *world) change(attribute string, n int64) {
	it := maps.Clone(w.items[dynamostore.ScanKey])
	it[attribute] = &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	w.put(it)
}

// table returns the table as text.
func (w *world) table() string { return w.show(slices.Collect(maps.Values(w.items))...) }

// state returns all that the future of w depends on.
func (w *world) state() [sha256.Size]byte {
	state := []string{w.table(), fmt.Sprint(w.now, w.asked, w.settled, w.fault, w.excused)}
	for _, a := range w.actors {
		state = append(state, a.next, a.heard)
	}
	return sha256.Sum256([]byte(strings.Join(state, "\n\n")))
}
