// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"math/rand/v2"
	"slices"
)

var settings = []setting{
	{"recovery", []string{"Reconcile", "Resume", "Rerun"}},
	{"effect", []string{"call", "step", "once", "Commit", "CommitStep"}}, // once: a step that runs at most once
	{"provider", []string{"keys", "no keys"}},
	{"resolver", []string{"none", "asks", "asks about the step"}},
	{"front", slices.Concat([]string{"Wrap", "Do"}, fronts["HTTP"], fronts["batch"])},
	{"profile", []string{"IETF", "Stripe", "UUID"}},
	{"option", []string{"none", "key in the body", "fields", "accepted", "exposed headers", "server errors", "two copies", "side by side", "fail any"}},
	{"store", []string{"memory", "DynamoDB", "chunk table", "prefix", "strong"}},
	{"result", []string{"small", "5 KB", "500 KB"}},
	{"codec", []string{"JSON", "own"}},
	{"seal", []string{"none", "own"}},
	{"cache", []string{"none", "entries"}},
	{"wait", []string{"none", "5 s"}},
	{"predecessor", []string{"none", "asked"}},
	{"margin", []string{"3 s", "20 s"}},
	{"reserve", []string{"500 ms", "5 s"}},
	{"retention", []string{"24 h", "30 days"}},
	{"unresolved", []string{"no limit", "48 h"}},
	{"downstream", []string{"24 h", "1 h"}},
	{"version", []string{"none", "v2"}},
	{"ref", []string{"none", "set"}},
	{"level", []string{"operation", "guard"}},                  // of the operation's options
	{"mode", []string{"enforcing", "shadow first"}},            // lives only
	{"correction", []string{"none", "made"}},                   // lives only: of a stored outcome
	{"attributes", []string{"ours", "a later version's, too"}}, // lives only: in the record
}

// fronts are the values of "front" that are HTTP, and those that are batches.
var fronts = map[string][]string{
	"HTTP":  {"HTTP API", "REST API", "load balancer", "function URL", "net/http", "net/http, flushed"},
	"batch": {"SQS", "FIFO", "Kinesis", "DynamoDB stream", "Kafka"},
}

func (r row) overHTTP() bool  { return slices.Contains(fronts["HTTP"], r["front"]) }
func (r row) inBatches() bool { return slices.Contains(fronts["batch"], r["front"]) }

// together reports whether the values of a pair go together. The others are refused when a
// guard or a store is made, or have no meaning.
func together(p pair) bool {
	for _, not := range []pair{
		{"effect", "Commit", "store", "memory"}, {"effect", "CommitStep", "store", "memory"}, // a transaction needs DynamoDB
		{"effect", "Commit", "store", "strong"}, {"effect", "CommitStep", "store", "strong"}, // and one region
		{"effect", "Commit", "provider", "no keys"}, {"effect", "CommitStep", "provider", "no keys"}, // there is no provider
		{"effect", "call", "resolver", "asks about the step"}, {"effect", "Commit", "resolver", "asks about the step"}, // there is no step
		{"effect", "CommitStep", "resolver", "asks about the step"},
		{"profile", "UUID", "option", "key in the body"}, // the profile wants a header
		{"store", "memory", "attributes", "a later version's, too"},
	} {
		if p == not {
			return false
		}
	}
	x, y := side(p.a, p.x), side(p.b, p.y)
	return x == "" || y == "" || x == y || x == "not HTTP" && y != "HTTP" || y == "not HTTP" && x != "HTTP"
}

// side returns what a value needs: a front of HTTP or of batches, or a direct call.
func side(setting, value string) string {
	switch {
	case setting == "front" && slices.Contains([]string{"Wrap", "Do"}, value):
		return "direct"
	case slices.Contains(fronts["HTTP"], value), slices.Contains([]string{"Stripe", "UUID", "key in the body", "fields", "accepted", "exposed headers", "server errors"}, value):
		return "HTTP"
	case slices.Contains(fronts["batch"], value), slices.Contains([]string{"two copies", "side by side", "fail any"}, value):
		return "batch"
	case setting == "codec" && value == "own": // responses have their own
		return "not HTTP"
	}
	return ""
}

// promise is what a row promises of its effect.
type promise int

const (
	atLeastOnce promise = iota
	atMostOnce
	exactlyOnce
)

func (r row) promise() promise {
	settles := r["recovery"] != "Reconcile" || r["resolver"] == "asks"
	switch {
	case r["effect"] == "Commit", r["effect"] == "CommitStep", r["provider"] == "keys" && r["effect"] != "once":
		if settles {
			return exactlyOnce
		}
		return atMostOnce
	case r["effect"] == "once":
		if r["resolver"] == "asks" {
			return exactlyOnce
		}
		return atMostOnce
	case r["recovery"] == "Reconcile":
		if settles {
			return exactlyOnce
		}
		return atMostOnce
	}
	return atLeastOnce
}

// setting is a setting and its values, the usual one first.
type setting struct {
	name   string
	values []string
}

// row has a value for each setting.
type row map[string]string

// pair is two settings with a value each, in the order of the settings.
type pair struct{ a, x, b, y string }

// pairsOf returns all pairs of values that go together.
func pairsOf(settings []setting, together func(pair) bool) (all []pair) {
	for i, a := range settings {
		for _, b := range settings[i+1:] {
			for _, x := range a.values {
				for _, y := range b.values {
					if p := (pair{a.name, x, b.name, y}); together(p) {
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

// cover returns rows that have each pair at least once. It begins a row with a pair that
// no row has, and gives each other setting the value with the most such pairs.
func cover(settings []setting, together func(pair) bool, seed uint64) (rows []row) {
	random := rand.New(rand.NewPCG(seed, seed))
	missing := map[pair]bool{}
	left := pairsOf(settings, together)
	for _, p := range left {
		missing[p] = true
	}
	for ; len(left) > 0; left = slices.DeleteFunc(left, func(p pair) bool { return !missing[p] }) {
		p := left[random.IntN(len(left))]
		r := complete(settings, together, row{p.a: p.x, p.b: p.y}, missing, random)
		for _, has := range r.pairs(settings) {
			delete(missing, has)
		}
		rows = append(rows, r)
	}
	return rows
}

// singles returns a row for each value, with the usual values of the other settings, or the
// first ones that go together with it. They show what the pairs find and they do not.
func singles(settings []setting, together func(pair) bool) (rows []row) {
	for _, s := range settings {
		for _, value := range s.values {
			r := row{s.name: value}
			for _, other := range settings {
				for _, usual := range other.values {
					if _, ok := r[other.name]; ok {
						break
					}
					r[other.name] = usual
					if slices.ContainsFunc(r.pairs(settings), func(p pair) bool { return !together(p) }) {
						delete(r, other.name)
					}
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// complete gives the other settings values. It begins again if a setting is left without a
// value that goes together with the others.
func complete(settings []setting, together func(pair) bool, begin row, missing map[pair]bool, random *rand.Rand) row {
	for range 1000 {
		r := row{}
		for name, value := range begin {
			r[name] = value
		}
		for _, i := range random.Perm(len(settings)) {
			s := settings[i]
			if _, ok := r[s.name]; ok {
				continue
			}
			best, most := "", -1
			for _, v := range random.Perm(len(s.values)) {
				r[s.name] = s.values[v]
				gained, fits := 0, true
				for _, p := range r.pairs(settings) {
					if fits = fits && together(p); missing[p] {
						gained++
					}
				}
				if fits && gained > most {
					best, most = s.values[v], gained
				}
			}
			if r[s.name] = best; most < 0 {
				break
			}
		}
		if len(r) == len(settings) && !slices.ContainsFunc(r.pairs(settings), func(p pair) bool { return !together(p) }) {
			return r
		}
	}
	panic("pairs: no row has this pair: " + begin.String(settings))
}

// pairs returns the pairs of the values that a row has so far.
func (r row) pairs(settings []setting) (all []pair) {
	for i, a := range settings {
		x, ok := r[a.name]
		if !ok {
			continue
		}
		for _, b := range settings[i+1:] {
			if y, ok := r[b.name]; ok {
				all = append(all, pair{a.name, x, b.name, y})
			}
		}
	}
	return all
}

// String returns the values that are not the usual ones.
func (r row) String(settings []setting) (text string) {
	for _, s := range settings {
		if v, ok := r[s.name]; ok && v != s.values[0] {
			text += s.name + "=" + v + " "
		}
	}
	return text
}
