// SPDX-License-Identifier: Apache-2.0

// Package peers compares once with what its users could use instead: the bare SDK
// and Powertools. All run on one DynamoDB Local:
//
//	make bench-peers    installs, measures, and writes docs/reports/benchmarks.md
//
// A contestant is a process. Its commands and answers are lines of JSON, so it can
// be written in any language:
//
//	once, bare    in Go; contestant has what they share
//	python        Powertools for AWS Lambda (Python)
//	typescript    Powertools for AWS Lambda (TypeScript), as JavaScript
//	install       installs the last two at the versions of their lock files
//	run           the command that measures
//
// To change a version, change it in python/requirements.txt, with the hashes that
// pip hash prints, or in typescript/package.json, and run npm install there.
package peers

// Chapters, each of which refers only to those below it:
//
//	measure.go      what is measured, in which order
//	behave.go       the scenarios
//	report.go       the tables of the page, its plot, and the dollars for a million operations
//	results.go      the figures of a run
//	proxy.go        bytes, calls and units
//	contestants.go  a running contestant, and the works of all

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/measured/bench/peers/contestant"
)

// warmUps is the number of turns of the lightest works before the first round,
// after which connections, caches and compilers are warm.
const warmUps = 3

// Options say how much Measure does.
type Options struct {
	Runs   int       // comparisons, each with new processes
	Rounds int       // turns of each contestant at the lightest works, in a run
	Starts int       // starts of each contestant
	Short  bool      // only the contestants written in Go, on one table, once at each work, without scenarios
	Log    io.Writer // for the progress
}

// harness is the machinery of one measurement.
type harness struct {
	Options
	engine   string
	client   *dynamodb.Client
	tables   map[string]string // by kind
	folder   string            // of results and programs
	sides    []side
	sdkSides []side // the SDK of each language alone
	kills    map[string]answer
}

// Measure compares the contestants on a new DynamoDB Local.
func Measure(ctx context.Context, o Options) (*Results, error) {
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		return nil, err
	}
	defer stop()
	folder, err := os.MkdirTemp("", "peers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	h := &harness{
		Options: o, engine: endpoint, client: dynamodb.NewFromConfig(engine.Config(endpoint)), folder: folder,
		tables: map[string]string{}, kills: map[string]answer{},
	}
	for _, step := range []func(context.Context) error{h.createTables, h.writeResults, h.prepareGo, h.preparePeers} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r := &Results{Rounds: o.Rounds, Starts: o.Starts}
	if err := h.describe(ctx, r); err != nil {
		return nil, err
	}
	parts := []func(*Results) error{h.compare, h.count, h.starts, h.behave}
	if h.Short {
		parts = parts[:3] // the scenarios wait for time-outs
	}
	for _, part := range parts {
		if err := part(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (h *harness) createTables(ctx context.Context) error {
	h.tables[plain] = "plain-" + strings.ToLower(rand.Text())
	h.tables[indexed] = "indexed-" + strings.ToLower(rand.Text())
	store, err := dynamostore.New(h.client, h.tables[indexed])
	if err != nil {
		return err
	}
	if err := store.CreateTable(ctx); err != nil {
		return err
	}
	return engine.CreateTable(ctx, h.client, h.tables[plain], "pk")
}

// writeResults writes the results that every handler returns. The lines of an order
// have random parts, so that they compress like those of a real one.
func (h *harness) writeResults(context.Context) error {
	random := mathrand.New(mathrand.NewPCG(1, 2)) // equal in every run
	for size, bytes := range map[string]int{"small": 0, "1KB": 1000, "20KB": 20_000, "300KB": 300_000, "600KB": 600_000} {
		result := contestant.Result{ID: "ch_2026_000417", Status: "succeeded"}
		data, err := json.Marshal(result)
		for err == nil && len(data) < bytes {
			for range 1 + (bytes-len(data))/200 {
				words := []string{"bolt", "steel", "M8", "zinc", "hex", "long", "short", "brass", "washer", "box"}
				var name []string
				for range 4 {
					name = append(name, words[random.IntN(len(words))])
				}
				result.Lines = append(result.Lines, contestant.Line{
					SKU: fmt.Sprintf("%016X", random.Uint64()), Name: strings.Join(name, " "), Quantity: 1 + random.IntN(20), Price: random.IntN(1_000_000)})
			}
			data, err = json.Marshal(result)
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(h.folder, size+".json"), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// prepareGo builds the contestants written in Go, as functions are built.
func (h *harness) prepareGo(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-tags=lambda.norpc", "-o", h.folder+"/", "./tests/measured/bench/peers/bare", "./tests/measured/bench/peers/once")
	build.Dir = engine.Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("peers: %w\n%s", err, said)
	}
	limit, once := []string{filepath.Join(h.folder, "bare")}, []string{filepath.Join(h.folder, "once")}
	tables := []string{plain}
	if !h.Short {
		tables = append(tables, indexed)
	}
	for _, table := range tables {
		h.sides = append(h.sides,
			side{Contestant: bare, Table: table, command: limit},
			side{Contestant: rerun, Table: table, command: once, env: []string{"RECOVERY=rerun"}},
			side{Contestant: reconcile, Table: table, command: once, env: []string{"RECOVERY=reconcile"}})
	}
	h.sdkSides = append(h.sdkSides, side{Contestant: "SDK for Go", command: limit})
	return nil
}

// preparePeers installs the others.
func (h *harness) preparePeers(ctx context.Context) error {
	if h.Short {
		return nil
	}
	install := exec.CommandContext(ctx, filepath.Join(engine.Root(), "tests/measured/bench/peers/install"))
	install.Stderr = os.Stderr
	said, err := install.Output()
	if err != nil {
		return fmt.Errorf("peers: install: %w", err)
	}
	paths := strings.Fields(string(said))
	if len(paths) != 3 {
		return fmt.Errorf("peers: install printed %q, want three paths", said)
	}
	inPython := []string{paths[0], filepath.Join(engine.Root(), "tests/measured/bench/peers/python/contestant.py")}
	inNode := paths[1:]
	h.sides = append(h.sides,
		side{Contestant: python, Table: plain, command: inPython},
		side{Contestant: typescript, Table: plain, command: inNode})
	h.sdkSides = append(h.sdkSides,
		side{Contestant: "SDK for Python", command: inPython, env: []string{"SDK_ONLY=1"}},
		side{Contestant: "SDK for JavaScript", command: inNode, env: []string{"SDK_ONLY=1"}})
	return nil
}

// begin starts a side on the engine at that address.
func (h *harness) begin(s side, endpoint string, env ...string) (*process, error) {
	p, _, err := start(s, append(env, "AWS_ENDPOINT_URL_DYNAMODB="+endpoint, "TABLE="+h.tables[s.Table], "RESULTS="+h.folder)...)
	return p, err
}

// compare measures the works in turns, in several runs, and the memory at their end.
func (h *harness) compare(r *Results) error {
	for n := range h.Runs {
		if err := h.run(r); err != nil {
			return err
		}
		fmt.Fprintf(h.Log, "run %d of %d\n", n+1, h.Runs)
	}
	return nil
}

// run measures the works once. The order of a round is random, because a turn also
// depends on what ran before it.
func (h *harness) run(r *Results) error {
	before, err := load()
	if err != nil {
		return err
	}
	slow, err := newSlowProxy(h.engine)
	if err != nil {
		return err
	}
	defer slow.Close()
	var processes []*process
	billed := map[string]*process{} // by side
	for _, s := range h.sides {
		p, err := h.begin(s, h.engine)
		if err != nil {
			return err
		}
		defer p.stop()
		processes = append(processes, p)
		if s.Table != plain {
			continue
		}
		if p, err = h.begin(s, slow.URL); err != nil {
			return err
		}
		defer p.stop()
		billed[s.String()] = p
	}
	one := Run{Costs: map[string]map[string]Cost{}}
	for _, w := range works {
		turns := make([][]turn, len(processes))
		rounds, warm := max(1, h.Rounds/w.every), 1+warmUps/w.every
		if h.Short {
			warm = 0
		}
		for round := range warm + rounds {
			for _, i := range mathrand.Perm(len(processes)) {
				if !h.sides[i].takes(w) {
					continue
				}
				var got turn
				n := h.operations(w)
				if err := processes[i].ask(w.of(n), &got); err != nil {
					return err
				}
				if round >= warm {
					turns[i] = append(turns[i], turn{got.Wall / float64(n), got.CPU / float64(n)})
				}
			}
		}
		one.add(w, h.sides, turns)
		if err := h.timeBilled(&one, w, billed); err != nil {
			return err
		}
	}
	after, err := load()
	if err != nil {
		return err
	}
	one.Load = [2]float64{before, after}
	r.Runs = append(r.Runs, one)
	r.Sides, r.Memory = nil, map[string]float64{}
	for i, p := range processes {
		peak, err := p.peak()
		if err != nil {
			return err
		}
		r.Sides = append(r.Sides, h.sides[i].String())
		r.Memory[h.sides[i].String()] = round4(float64(peak) / 1e6)
	}
	return nil
}

// timeBilled measures the time of a work that Lambda would bill, after a turn that warms up.
func (h *harness) timeBilled(one *Run, w work, processes map[string]*process) error {
	n := max(1, h.operations(w)/2)
	for _, i := range mathrand.Perm(len(h.sides)) {
		p := processes[h.sides[i].String()]
		if p == nil || !h.sides[i].takes(w) {
			continue
		}
		var got turn
		for range 2 {
			if err := p.ask(w.of(n), &got); err != nil {
				return err
			}
		}
		cost := one.Costs[w.name][p.name]
		cost.Billed = round4(got.Wall / float64(n) / 1e3)
		one.Costs[w.name][p.name] = cost
	}
	return nil
}

// operations returns how many operations a turn has.
func (h *harness) operations(w work) int {
	if h.Short {
		return 1
	}
	return w.n
}

// load returns how many processes were ready to run in the last minute, on average.
func load() (v float64, err error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(data), &v)
	return v, err
}

// count counts calls, bytes and units, on an engine behind a proxy.
func (h *harness) count(r *Results) error {
	m := newMeter(h.engine)
	defer m.server.Close()
	r.Traffic = map[string]map[string]Traffic{}
	for _, w := range works {
		r.Traffic[w.name] = map[string]Traffic{}
	}
	for _, s := range h.sides {
		p, err := h.begin(s, m.server.URL)
		if err != nil {
			return err
		}
		defer p.stop()
		for _, w := range works {
			if !s.takes(w) {
				continue
			}
			// The SDK for Go repeats some calls: if an endpoint is very quick, its
			// transport closes the connection under a large answer. So the least of a
			// few measurements counts.
			var least Traffic
			for range 3 {
				t, err := h.trafficOf(p, m, w)
				if err != nil {
					return err
				}
				if least.Calls == 0 || t.Calls < least.Calls {
					least = t
				}
			}
			r.Traffic[w.name][s.String()] = least
		}
	}
	return nil
}

// trafficOf returns what one operation of a work sends and receives. A work may
// prepare itself with a first request, so the difference of two turns is what
// further operations cost.
func (h *harness) trafficOf(p *process, m *meter, w work) (Traffic, error) {
	more := min(w.n, 3)
	var counted [2]Traffic
	for i, n := range []int{1, 1 + more} {
		err := p.ask(w.of(n), &turn{})
		if counted[i], err = m.take(err); err != nil {
			return Traffic{}, err
		}
	}
	return counted[1].minus(counted[0]).each(more), nil
}

// starts measures the time until a contestant, or only the SDK of its language,
// is ready.
func (h *harness) starts(r *Results) error {
	sides := slices.Clone(h.sdkSides)
	for _, s := range h.sides {
		if s.Table == plain && s.Contestant != bare {
			sides = append(sides, s)
		}
	}
	var failure error
	var ops []func() float64
	for _, s := range sides {
		op := func() float64 {
			p, took, err := start(s, "TABLE=records", "AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:1")
			if err != nil {
				failure = err
				return 0
			}
			p.stop()
			return took.Seconds() * 1000
		}
		op() // its files are in the page cache after this
		ops = append(ops, op)
	}
	r.Ready = map[string]Spread{}
	for i, took := range kit.Turns(h.Starts, ops...) {
		r.Ready[sides[i].Contestant] = spreadOf(took)
	}
	return failure
}

// describe records where and with which versions the results were measured.
func (h *harness) describe(ctx context.Context, r *Results) error {
	r.Versions = map[string]string{}
	commands := map[string][]string{"Go": {"go", "env", "GOVERSION"}}
	for _, s := range h.sdkSides {
		switch s.Contestant {
		case "SDK for Python":
			commands["Python"] = []string{s.command[0], "-c", "import platform; print(platform.python_version())"}
		case "SDK for JavaScript":
			commands["Node"] = []string{s.command[0], "--version"}
		}
	}
	for name, command := range commands {
		said, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil {
			return err
		}
		r.Versions[name] = strings.TrimLeft(strings.TrimSpace(string(said)), "gov")
	}
	info, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return err
	}
	defer info.Close()
	for lines := bufio.NewScanner(info); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			r.Processor = strings.TrimSpace(value)
			r.Processors++
		}
	}
	return nil
}
