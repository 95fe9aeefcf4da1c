// SPDX-License-Identifier: Apache-2.0

package peers

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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/measuretest"
	"github.com/once-lambda/once/tests/bench/peers/contestant"
	"github.com/once-lambda/once/tests/engine"
)

// Side is a contestant with its table.
type Side struct {
	Contestant, Table string
	command, env      []string
}

func (s Side) String() string { return s.Contestant + "/" + s.Table }

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
	{"first", "first request", 10, 1},
	{"replay", "replay", 10, 1},
	{"in-progress", "refused: in progress", 10, 2},
	{"first-10KB", "first request, result of 10 KB", 5, 4},
	{"replay-10KB", "replay of 10 KB", 5, 4},
	{"first-300KB", "first request, result of 300 KB", 2, 8},
	{"replay-300KB", "replay of 300 KB", 2, 8},
	{"64-callers", "64 callers on one key", 1, 8},
	{"batch-10", "batch of 10 messages", 2, 8},
}

// warmUps is the number of turns before the first round, after which connections,
// caches and compilers are warm.
const warmUps = 10

// Options say how much Measure does.
type Options struct {
	Rounds int       // turns of each contestant at the lightest works
	Starts int       // starts of each contestant
	Short  bool      // only the contestants written in Go, once at each work, without scenarios
	Log    io.Writer // for the progress
}

// harness is the machinery of one measurement.
type harness struct {
	Options
	engine   string
	client   *dynamodb.Client
	tables   map[string]string // by kind
	folder   string            // of results and programs
	sides    []Side
	sdkSides []Side // the SDK of each language alone
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
	h := &harness{Options: o, engine: endpoint, client: dynamodb.NewFromConfig(engine.Config(endpoint)), folder: folder, tables: map[string]string{}, kills: map[string]answer{}}
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
	_, err = h.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            aws.String(h.tables[plain]),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	})
	return err
}

// writeResults writes the results that every handler returns. The lines of an order
// have random parts, so that they compress like those of a real one.
func (h *harness) writeResults(context.Context) error {
	random := mathrand.New(mathrand.NewPCG(1, 2)) // equal in every run
	for size, bytes := range map[string]int{"small": 0, "10KB": 10_000, "300KB": 300_000, "600KB": 600_000} {
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
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-tags=lambda.norpc", "-o", h.folder+"/", "./tests/bench/peers/bare", "./tests/bench/peers/once")
	build.Dir = engine.Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("peers: %w\n%s", err, said)
	}
	limit, once := []string{filepath.Join(h.folder, "bare")}, []string{filepath.Join(h.folder, "once")}
	for _, table := range []string{indexed, plain} {
		h.sides = append(h.sides,
			Side{Contestant: bare, Table: table, command: limit},
			Side{Contestant: rerun, Table: table, command: once, env: []string{"RECOVERY=rerun"}},
			Side{Contestant: reconcile, Table: table, command: once, env: []string{"RECOVERY=reconcile"}})
	}
	h.sdkSides = append(h.sdkSides, Side{Contestant: "SDK for Go", command: limit})
	return nil
}

// preparePeers installs the others.
func (h *harness) preparePeers(ctx context.Context) error {
	if h.Short {
		return nil
	}
	install := exec.CommandContext(ctx, filepath.Join(engine.Root(), "tests/bench/peers/install"))
	install.Stderr = os.Stderr
	said, err := install.Output()
	if err != nil {
		return fmt.Errorf("peers: install: %w", err)
	}
	interpreter, module, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	inPython := []string{interpreter, filepath.Join(engine.Root(), "tests/bench/peers/python/contestant.py")}
	inNode := []string{"node", module}
	h.sides = append(h.sides,
		Side{Contestant: python, Table: plain, command: inPython},
		Side{Contestant: typescript, Table: plain, command: inNode})
	h.sdkSides = append(h.sdkSides,
		Side{Contestant: "SDK for Python", command: inPython, env: []string{"SDK_ONLY=1"}},
		Side{Contestant: "SDK for JavaScript", command: inNode, env: []string{"SDK_ONLY=1"}})
	return nil
}

// begin starts a side on the engine at that address.
func (h *harness) begin(s Side, endpoint string, env ...string) (*process, error) {
	p, _, err := start(s, append(env, "AWS_ENDPOINT_URL_DYNAMODB="+endpoint, "TABLE="+h.tables[s.Table], "RESULTS="+h.folder)...)
	return p, err
}

// task is the command for a work.
func (w work) task(n int) map[string]any { return map[string]any{"work": w.name, "n": n} }

// turn is the cost of one turn of a side, in nanoseconds per operation.
type turn struct{ Wall, CPU float64 }

// compare measures the works in turns, and the memory at their end.
func (h *harness) compare(r *Results) error {
	var all []*process
	for _, s := range h.sides {
		p, err := h.begin(s, h.engine)
		if err != nil {
			return err
		}
		defer p.stop()
		all = append(all, p)
		r.Sides = append(r.Sides, s.String())
	}
	r.Costs = map[string]map[string]Cost{}
	for _, w := range works {
		var failure error
		take := func(p *process, n int) turn {
			var got turn
			if err := p.ask(w.task(n), &got); err != nil && failure == nil {
				failure = err
			}
			return turn{got.Wall / float64(n), got.CPU / float64(n)}
		}
		rounds, n, before := max(1, h.Rounds/w.every), w.n, warmUps
		if h.Short {
			n, before = 1, 0
		}
		var ops []func() turn
		for _, p := range all {
			for range before {
				take(p, n)
			}
			ops = append(ops, func() turn { return take(p, n) })
		}
		began := time.Now()
		turns := measuretest.Turns(rounds, ops...)
		if failure != nil {
			return failure
		}
		r.add(w.name, h.sides, turns)
		fmt.Fprintf(h.Log, "%s: %d rounds in %s\n", w.title, rounds, time.Since(began).Round(time.Second))
	}
	r.Memory = map[string]float64{}
	for i, p := range all {
		peak, err := p.peak()
		if err != nil {
			return err
		}
		r.Memory[h.sides[i].String()] = round4(float64(peak) / 1e6)
	}
	return nil
}

// count counts calls, bytes and units, on an engine behind a proxy.
func (h *harness) count(r *Results) error {
	m := newMeter(h.engine)
	defer m.server.Close()
	r.Traffic = map[string]map[string]Traffic{}
	for _, s := range h.sides {
		p, err := h.begin(s, m.server.URL)
		if err != nil {
			return err
		}
		for _, w := range works {
			// A work may prepare itself with a first request, so the difference of two
			// turns is what further operations cost.
			var counted [2]Traffic
			for i, n := range []int{1, 1 + w.n} {
				err := p.ask(w.task(n), &turn{})
				if counted[i], err = m.take(err); err != nil {
					return err
				}
			}
			if r.Traffic[w.name] == nil {
				r.Traffic[w.name] = map[string]Traffic{}
			}
			r.Traffic[w.name][s.String()] = counted[1].minus(counted[0]).each(w.n)
		}
		p.stop()
	}
	return nil
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
	for i, took := range measuretest.Turns(h.Starts, ops...) {
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
			commands["Node"] = []string{"node", "--version"}
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
