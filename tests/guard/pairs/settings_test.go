// SPDX-License-Identifier: Apache-2.0

package pairs

import "slices"

var settings = []setting{
	{"recovery", []string{"Reconcile", "Resume", "Rerun"}},
	{"effect", []string{"call", "step", "once", "Commit", "CommitStep"}}, // once: a step that runs at most once
	{"provider", []string{"keys", "no keys"}},
	{"resolver", []string{"none", "asks", "asks about the step"}},
	{"front", []string{"Wrap", "Do", "IETF", "Stripe", "UUID", "SQS", "FIFO", "Kinesis"}},
	{"store", []string{"memory", "DynamoDB", "chunk table", "prefix", "strong"}},
	{"result", []string{"small", "5 KB", "500 KB"}},
	{"codec", []string{"JSON", "own"}},
	{"seal", []string{"none", "own"}},
	{"cache", []string{"none", "entries"}},
	{"wait", []string{"none", "5 s"}},
	{"predecessor", []string{"none", "asked"}},
	{"margin", []string{"3 s", "20 s"}},
	{"retention", []string{"24 h", "30 days"}},
	{"unresolved", []string{"no limit", "48 h"}},
	{"downstream", []string{"24 h", "1 h"}},
	{"version", []string{"none", "v2"}},
}

// together reports whether the values of a pair go together. The others are refused when a
// guard or a store is made, or have no meaning.
func together(p pair) bool {
	for _, not := range []pair{
		{"effect", "Commit", "store", "memory"}, {"effect", "CommitStep", "store", "memory"}, // a transaction needs DynamoDB
		{"effect", "Commit", "store", "strong"}, {"effect", "CommitStep", "store", "strong"}, // and one region
		{"effect", "Commit", "provider", "no keys"}, {"effect", "CommitStep", "provider", "no keys"}, // there is no provider
		{"effect", "call", "resolver", "asks about the step"}, {"effect", "Commit", "resolver", "asks about the step"}, // there is no step
		{"effect", "CommitStep", "resolver", "asks about the step"},
	} {
		if p == not {
			return false
		}
	}
	http := []string{"IETF", "Stripe", "UUID"}
	return !(p.a == "front" && slices.Contains(http, p.x) && p.b == "codec" && p.y == "own") // responses have their own codec
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
