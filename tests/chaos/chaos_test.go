package chaos

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/tests/engine"
)

var (
	length = flag.Duration("chaos", 0, "how long the storm lasts; 0 means no storm")
	seed   = flag.Uint64("chaos-seed", 0, "seed of the storm; 0 draws one")
)

func TestMain(m *testing.M) {
	if os.Getenv(envClient) == "" {
		os.Exit(m.Run())
	}
	if err := client(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The minimum counts for ten minutes.
var wanted = map[string]int{
	factRequests: 20_000, factKills: 300, factStops: 300, factRestarts: 20, factPauses: 20, factWire: 2_000,
}

// TestChaos runs a storm for as long as -chaos says. Without the flag, it tests
// only the parts of the harness.
func TestChaos(t *testing.T) {
	if *length == 0 {
		t.Log("no storm; set -chaos to its length")
		return
	}
	s, violations := survive(t, *length, false)
	const shown = 100
	for fact, n := range wanted {
		s.seen.Least(t, int(float64(n)*length.Seconds()/600), fact)
	}
	for _, v := range violations[:min(len(violations), shown)] {
		t.Error(v)
	}
}

// TestChaosNotices runs a short storm with clients whose store grants every
// claim. The harness has to find effects that happened twice.
func TestChaosNotices(t *testing.T) {
	if *length == 0 {
		t.Log("no storm; set -chaos to its length")
		return
	}
	_, violations := survive(t, 8*time.Second, true)
	twice := 0
	for _, v := range violations {
		if strings.Contains(v, "the effect in the ledger happened") {
			twice++
		}
	}
	if twice == 0 {
		t.Errorf("clients ran at the same time, but the harness reports %d violations and no double effect", len(violations))
	}
}

// survive runs a storm, recovers from it, and returns the violations.
func survive(t *testing.T, length time.Duration, lawless bool) (*storm, []string) {
	ctx := t.Context()
	s := &storm{t: t, seed: *seed, book: newBook(), sandboxes: map[string]*sandbox{}}
	if s.seed == 0 {
		var random [8]byte
		rand.Read(random[:])
		s.seed = binary.BigEndian.Uint64(random[:])
	}
	t.Logf("a storm of %s with -chaos-seed %d", length, s.seed)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	var err error
	s.engine, err = engine.NewDurable(ctx, folder(t))
	must(err)
	t.Cleanup(func() {
		if err := s.engine.Kill(); err != nil {
			t.Error(err)
		}
	})
	books, err := openLedger(filepath.Join(t.TempDir(), "ledger"))
	must(err)
	s.bank = newBank(books, s.seed, 0.03)
	defer s.bank.Close()
	holds := s.random(5)
	s.proxy = newProxy(s.engine.Endpoint(), idempotenttest.Seeded(s.seed, weather...), holdTimes(holds))

	v := &recovery{parallel: 8}
	s.settings = settings{
		Endpoint: s.proxy.URL, Table: "chaos-records", Orders: "chaos-orders", Ledger: books.file.Name(), Bank: s.bank.URL, Lawless: lawless,
	}
	v.store, v.client, err = connect(engine.Config(s.engine.Endpoint()), s.settings.Table)
	must(err)
	v.world = world{store: v.store, guarded: v.store, orders: s.settings.Orders, ledger: books, bank: s.bank.URL}
	must(v.store.CreateTable(ctx))
	_, err = v.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String(v.orders), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(dynamostore.PartitionKey), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(dynamostore.PartitionKey), KeyType: types.KeyTypeHash}},
	})
	must(err)

	raging, calm := context.WithTimeout(ctx, length)
	s.rage(raging)
	calm()
	must(pause(ctx, 3*time.Second+2*margin)) // every lease has ended
	began := time.Now()
	unlisted, due, exhausted, err := v.unlisted(ctx)
	must(err)
	works := s.book.all()
	must(v.run(ctx, works, length+5*time.Minute))
	must(v.settle(ctx))
	left, records, chunks, err := v.leftover(ctx)
	must(err)
	for said, n := range s.bank.said {
		s.seen.Add("times that the evidence was: "+said, n)
	}
	updates, err := v.updates(ctx)
	must(err)
	violations := unlisted
	unkept := 0
	for _, w := range works {
		effects, proof, err := v.effectsOf(w, s.bank, updates)
		must(err)
		violations = append(violations, judge(w, effects, proof)...)
		if w.final.Class == classUnavailable {
			unkept++
		}
	}
	violations = append(violations, left...)
	var wire strings.Builder
	for _, o := range append(weather[:len(weather):len(weather)], idempotenttest.Odds{Fault: engineGone}) {
		fmt.Fprintf(&wire, "\n%7d %s", s.proxy.faults[o.Fault], o.Fault)
	}
	t.Logf("what the storm did%s\non the wire, of %d requests%s%s\nafter the storm %d records were due and %d exhausted\n"+
		"recovery took %s; %d records, %d chunks, %d results not kept\n%d violations",
		&s.seen, s.proxy.calls, &wire, s.book.table(), due, exhausted,
		time.Since(began).Round(time.Millisecond), records, chunks, unkept, len(violations))
	return s, violations
}

// folder returns a folder for the database, in memory where there is such a
// file system.
func folder(t *testing.T) string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "once-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
