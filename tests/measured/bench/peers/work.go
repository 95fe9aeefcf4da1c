// SPDX-License-Identifier: Apache-2.0

package peers

// side is a contestant with its table.
type side struct {
	Contestant, Table string
	command, env      []string
}

func (s side) String() string { return s.Contestant + "/" + s.Table }

// The contestants, in the order of the page.
const (
	bare       = "bare"
	rerun      = "once, Rerun"
	reconcile  = "once, Reconcile"
	python     = "Powertools Python"
	typescript = "Powertools TypeScript"
)

// The two kinds of tables. Only once uses the index, and only under Reconcile.
const (
	plain   = "plain"   // a partition key
	indexed = "indexed" // and the index of the toolkit
)

// work is what the contestants do, in turns of n operations. Short turns are rarely
// disturbed. The heavier works have fewer turns, one for each round that is divided
// by every.
type work struct {
	name, title string
	n, every    int
}

var works = []work{
	{"first", "first request", 5, 1},
	{"replay", "replay", 5, 1},
	{"in-progress", "refused: in progress", 5, 4},
	{"first-10KB", "first request, result of 10 KB", 3, 10},
	{"replay-10KB", "replay of 10 KB", 3, 10},
	{"first-300KB", "first request, result of 300 KB", 1, 16},
	{"replay-300KB", "replay of 300 KB", 1, 16},
	{"64-callers", "64 callers on one key", 1, 16},
	{"batch-10", "batch of 10 messages", 1, 16},
}

// task is the command for a work.
func (w work) task(n int) map[string]any { return map[string]any{"work": w.name, "n": n} }

// turn is the cost of one turn of a side, in nanoseconds per operation.
type turn struct{ Wall, CPU float64 }
