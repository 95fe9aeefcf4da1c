// SPDX-License-Identifier: Apache-2.0

package pairs

import "slices"

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
