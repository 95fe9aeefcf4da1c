// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/oncevet.md")

// claim is a row of the table of docs/oncevet.md: a mistake in Go, and the same work
// done right. Both are statements of a function of the form
//
//	func(ctx context.Context, o Order) (id string, err error)
type claim struct {
	check, text string
	// before stands in the handler, also if the mistake is in another function.
	before       string
	wrong, right string
	also         []string // right, too
	options      string   // of the operation
	// frame is what the statements are for, see frames; the zero value is a handler.
	frame string
}

const (
	post   = `_, err = http.Post("https://bank.test/charges", "text/plain", nil)`
	commit = `err = dynamostore.Commit(ctx, "placed"); if err != nil { return }`
	resume = `func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge"} }`
	charge = `id, err = idempotent.Step(ctx, "charge", work)`
)

// step returns a step with these statements.
func step(statements string) string {
	return `id, err = idempotent.Step(ctx, "charge", func(ctx context.Context) (id string, err error) { ` + statements + `; return })`
}

// keyed returns a request with this key.
func keyed(key string) string {
	return `req, e := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test/charges", nil); if e != nil { err = e; return }; req.Header.Set("Idempotency-Key", ` + key + `); _, err = http.DefaultClient.Do(req)`
}

var claims = []claim{
	{check: "lostcontext", text: "a new root context, as of `context.Background`, in a call", wrong: `err = call(context.Background())`, right: `err = call(ctx)`, also: []string{`defer call(context.Background()); defer func() { log.Print(call(context.Background())) }()`}},
	{check: "lostcontext", text: "a context made of one", wrong: `c, cancel := context.WithTimeout(context.TODO(), time.Second); defer cancel(); err = call(c)`, right: `c, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second); defer cancel(); err = call(c)`},
	{check: "lostcontext", text: "one that a field of a struct keeps", wrong: `err = call(newKeeper().ctx)`, right: `err = call((&holder{ctx: ctx}).ctx)`, also: []string{`for range o.Parts { ctx = context.WithoutCancel(ctx) }; err = call((&holder{ctx: ctx}).ctx)`}},
	{check: "lostcontext", text: "one that a variable of the package keeps", wrong: `err = call(background)`, right: `background := ctx; err = call(background)`},
	{check: "downstreamkey", text: "a `POST` in a step", wrong: step(post), right: step(keyed("idempotent.DownstreamKey(ctx)")), also: []string{strings.TrimSuffix(step(post), ")") + `, func(o *idempotent.StepOptions) { o.AtMostOnce = true })`}},
	{check: "downstreamkey", text: "a `POST` under `Rerun`", wrong: post, right: keyed("idempotent.DownstreamKey(ctx)"), options: `func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun }`},
	{check: "downstreamkey", text: "a random key", wrong: step(keyed("uuid.NewString()")), right: step(keyed("o.ID"))},
	{check: "downstreamkey", text: "a key that is computed and not sent", wrong: step(`key := idempotent.DownstreamKey(ctx); log.Print(key); ` + post), right: step(`key := idempotent.DownstreamKey(ctx); log.Print(key); ` + keyed("key"))},
	{check: "outsidestep", text: "a request outside the steps", wrong: post, right: step(keyed("idempotent.DownstreamKey(ctx)")), options: resume},
	{check: "notexecuted", text: "`NotExecuted` after a request", wrong: post + `; if err != nil { err = idempotent.NotExecuted(err) }`, right: post + `; if errors.Is(err, errNotSent) { err = idempotent.NotExecuted(err) }`, also: []string{`defer func() { ` + post + ` }(); if o.ID == "" { err = idempotent.NotExecuted(errNotSent) }`}},
	{check: "notexecuted", text: "`NotExecuted` in another function than the request", before: post, wrong: `if err != nil { err = idempotent.NotExecuted(err) }`, right: `if errors.Is(err, errNotSent) { err = idempotent.NotExecuted(err) }`},
	{check: "ignored", text: "a dropped error", wrong: `_ = dynamostore.Commit(ctx, "placed")`, right: `err = dynamostore.Commit(ctx, "placed")`, also: []string{`defer func() { err = errors.Join(err, dynamostore.Commit(ctx, "placed")) }()`}},
	{check: "ignored", text: "an overwritten error", wrong: `failed := dynamostore.Commit(ctx, "placed"); failed = call(ctx); err = failed`, right: `failed := dynamostore.Commit(ctx, "placed"); err = errors.Join(failed, call(ctx))`},
	{check: "ignored", text: "an error that is only logged", wrong: `if failed := dynamostore.Commit(ctx, "placed"); failed != nil { log.Print(failed) }`, right: `if failed := dynamostore.Commit(ctx, "placed"); failed != nil { log.Print(failed); err = failed }`},
	{check: "ignored", text: "`errors.As` or `errors.Is`, and then only a log line", wrong: `var condition *dynamostore.ConditionError; if failed := dynamostore.Commit(ctx, "placed"); errors.As(failed, &condition) { log.Print(condition.Error()) } else if failed != nil { log.Print(failed) }`, right: `var condition *dynamostore.ConditionError; if failed := dynamostore.Commit(ctx, "placed"); errors.As(failed, &condition) { log.Print(condition.Error()); err = idempotent.Final("exists", "It exists.") } else if failed != nil { err = failed }`},
	{check: "afterexit", text: "a goroutine that nothing waits for", wrong: `go call(ctx)`, right: `done := make(chan error, 1); go func() { done <- call(ctx) }(); err = <-done`, also: []string{`done := make(chan error, 1); defer func() { err = <-done }(); go func() { done <- call(ctx) }()`, `go func() { <-ctx.Done(); log.Print(context.Cause(ctx)) }()`}},
	{check: "unstablekey", text: "the time", frame: "key", wrong: `id = time.Now().String()`, right: `id = time.Now().Format("2006-01-02")`},
	{check: "unstablekey", text: "a random number", frame: "key", wrong: `id = fmt.Sprint(rand.Int())`, right: `id = fmt.Sprint(o.ID)`},
	{check: "unstablekey", text: "bytes of `crypto/rand.Read`", frame: "key", wrong: `b := make([]byte, 16); crand.Read(b); id = hex.EncodeToString(b)`, right: `b := make([]byte, 16); copy(b, o.ID); id = hex.EncodeToString(b)`},
	{check: "unstablekey", text: "a new UUID", frame: "key", wrong: `id = uuid.NewString()`, right: `id = uuid.NewSHA1(uuid.NameSpaceURL, []byte(o.ID)).String()`},
	{check: "unstablekey", text: "the request id of Lambda or of a gateway", frame: "key", wrong: `lc, _ := lambdacontext.FromContext(ctx); id = lc.AwsRequestID`, right: `lc, _ := lambdacontext.FromContext(ctx); id = lc.InvokedFunctionArn`},
	{check: "unstablekey", text: "the id or receipt of an SQS message", frame: "key", wrong: `id = o.Message.MessageId`, right: `id = o.Message.Body`},
	{check: "unstablekey", text: "the order of a map", frame: "key", wrong: `for name := range o.Parts { id += name }`, right: `id = strings.Join(slices.Sorted(maps.Keys(o.Parts)), ",")`},
	{check: "unstablekey", text: "one of these as an argument of a function that makes the key", wrong: `use(newKey(uuid.NewString()))`, right: `use(newKey(o.ID))`},
	{check: "stepname", text: "a name that is used twice", wrong: charge + `; if err == nil { ` + charge + ` }`, right: charge + `; if err == nil { id, err = idempotent.Step(ctx, "ship", work) }`},
	{check: "stepname", text: "a constant name in a loop", wrong: `for range o.Parts { if ` + charge + `; err != nil { return } }`, right: `for part := range o.Parts { if id, err = idempotent.Step(ctx, "charge/"+part, work); err != nil { return } }`},
	{check: "stepname", text: "a name with a time or a random number", wrong: `id, err = idempotent.Step(ctx, "charge/"+uuid.NewString(), work)`, right: `id, err = idempotent.Step(ctx, "charge/"+o.ID, work)`},
	{check: "stepname", text: "a step inside a step", wrong: step(`id, err = idempotent.Step(ctx, "inner", work)`), right: step(`id, err = work(ctx)`)},
	{check: "stepname", text: "a step that `Operation.Steps` does not list", wrong: `id, err = idempotent.Step(ctx, "ship", work)`, right: charge, options: resume},
	{check: "joined", text: "`NotExecuted` inside another error", wrong: `err = fmt.Errorf("take: %w", idempotent.NotExecuted(errNotSent))`, right: `err = idempotent.NotExecuted(fmt.Errorf("take: %w", errNotSent))`},
	{check: "joined", text: "`Final` among several errors", wrong: `err = errors.Join(errNotSent, idempotent.Final("declined", "Declined."))`, right: `err = fmt.Errorf("take: %w", idempotent.Final("declined", "Declined."))`},
	{check: "aftercommit", text: "a request after `Commit`", before: commit, wrong: post, right: `_, err = http.Get("https://bank.test/charges")`},
	{check: "aftercommit", text: "a step after `Commit`", before: commit, wrong: charge, right: `log.Print("placed")`},
	{check: "committype", text: "a result of another type", wrong: `err = dynamostore.Commit(ctx, 1)`, right: `err = dynamostore.Commit(ctx, "placed")`},
	{check: "wholeevent", text: "a key without a fingerprint", frame: "KeyFunc", wrong: `func(_ context.Context, e events.SQSEvent) (idempotent.Key, error) { return idempotent.Key{Operation: "order", Scope: idempotent.Global, ID: e.Records[0].Body}, nil }`, right: `func(_ context.Context, e events.SQSEvent) (k idempotent.Key, err error) { k = idempotent.Key{Operation: "order", Scope: idempotent.Global, ID: e.Records[0].Body}; k.Fingerprint, err = idempotent.FingerprintOf(k.ID); return }`},
	{check: "wholeevent", text: "`FingerprintOf` a whole event", wrong: `_, err = idempotent.FingerprintOf(o.Event)`, right: `_, err = idempotent.FingerprintOf(o.Event.Records[0].Body)`},
	{check: "retention", text: "a retention shorter than the redelivery", frame: "Operation", wrong: `func(o *idempotent.Operation) { o.Retention = 24 * time.Hour }`, right: `func(o *idempotent.Operation) { o.Retention = lambdabatch.EventBridgeRedelivery }`},
}

// places are the columns of the table.
var places = []string{"in the handler", "in a function that it calls", "in a deferred closure", "in another package"}

// frames are functions with the statements $S in each place. $N is the name of the
// function, $H that of the one which the second and the last place call, $B the
// statements before, and $O the options. Each takes one line.
var frames = map[string]struct {
	places [4]string
	helper string // what the second and the last place call
}{
	"": {
		places: [4]string{
			`func $N(guard *idempotent.Guard, key idempotent.KeyFunc[Order]) { idempotent.Wrap(guard, key, func(ctx context.Context, o Order) (id string, err error) { $B; $S; return }, $O) }`,
			`func $N(guard *idempotent.Guard, key idempotent.KeyFunc[Order]) { idempotent.Wrap(guard, key, func(ctx context.Context, o Order) (id string, err error) { $B; return $H(ctx, o, id, err) }, $O) }`,
			`func $N(guard *idempotent.Guard, key idempotent.KeyFunc[Order]) { idempotent.Wrap(guard, key, func(ctx context.Context, o Order) (id string, err error) { defer func() { $S; return }(); $B; return }, $O) }`,
			`func $N(guard *idempotent.Guard, key idempotent.KeyFunc[Order]) { idempotent.Wrap(guard, key, func(ctx context.Context, o Order) (id string, err error) { $B; return $H(ctx, o, id, err) }, $O) }`,
		},
		helper: `func $H(ctx context.Context, o Order, was string, earlier error) (id string, err error) { id, err = was, earlier; $S; return }`,
	},
	"key": {
		places: [4]string{
			`func $N(ctx context.Context, o Order) (k idempotent.Key) { var id string; $S; k = idempotent.Key{Operation: "order", Scope: "s", ID: id}; return }`,
			`func $N(ctx context.Context, o Order) (k idempotent.Key) { k = idempotent.Key{Operation: "order", Scope: "s", ID: $H(ctx, o)}; return }`,
			`func $N(ctx context.Context, o Order) (k idempotent.Key) { defer func() { var id string; $S; k.ID = id }(); return idempotent.Key{Operation: "order", Scope: "s"} }`,
			`func $N(ctx context.Context, o Order) (k idempotent.Key) { k = idempotent.Key{Operation: "order", Scope: "s", ID: $H(ctx, o)}; return }`,
		},
		helper: `func $H(ctx context.Context, o Order) (id string) { $S; return }`,
	},
	"KeyFunc": {
		places: [4]string{
			`func $N(guard *idempotent.Guard) { idempotent.Wrap(guard, $S, take) }`,
			`func $N(guard *idempotent.Guard) { idempotent.Wrap(guard, $H(), take) }`,
			`func $N(guard *idempotent.Guard) { defer func() { idempotent.Wrap(guard, $S, take) }() }`,
			`func $N(guard *idempotent.Guard) { idempotent.Wrap(guard, $H(), take) }`,
		},
		helper: `func $H() idempotent.KeyFunc[events.SQSEvent] { return $S }`,
	},
	"Operation": {
		places: [4]string{
			`func $N(guard *idempotent.Guard) { idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), bridge, $S) }`,
			`func $N(guard *idempotent.Guard) { idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), bridge, $H()) }`,
			`func $N(guard *idempotent.Guard) { defer func() { idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), bridge, $S) }() }`,
			`func $N(guard *idempotent.Guard) { idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), bridge, $H()) }`,
		},
		helper: `func $H() func(*idempotent.Operation) { return $S }`,
	},
}

// common are the declarations of each file's package that the statements use.
const common = `
type keeper struct{ ctx context.Context }
type holder struct{ ctx context.Context }
var background = context.Background()
var errNotSent = errors.New("not sent")
func newKeeper() keeper { c, _ := context.WithCancel(context.Background()); return keeper{ctx: c} }
func call(ctx context.Context) error { _, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://bank.test", nil); return err }
func work(context.Context) (string, error) { return "", nil }
func newKey(id string) idempotent.Key { return idempotent.Key{Operation: "order", Scope: "s", ID: id} }
func use(idempotent.Key) {}
func take(context.Context, events.SQSEvent) (string, error) { return "", nil }
func bridge(context.Context, events.EventBridgeEvent) (string, error) { return "", nil }
`

var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "hex": "encoding/hex", "http": "net/http", "log": "log", "maps": "maps", "slices": "slices", "strings": "strings", "time": "time", "rand": "math/rand/v2", "crand": "crypto/rand",
	"events": "github.com/aws/aws-lambda-go/events", "lambdacontext": "github.com/aws/aws-lambda-go/lambdacontext", "uuid": "github.com/google/uuid",
	"idempotent": once + "idempotent", "dynamostore": once + "dynamostore", "lambdabatch": once + "lambdabatch", "far": "example.com/vet/far", "order": "example.com/vet/order",
}

// source returns a file of a package with the imports that its code uses.
func source(pkg, code string) string {
	text := "package " + pkg + "\n"
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(code) {
			text += fmt.Sprintf("import %s %q\n", name, imports[name])
		}
	}
	return text + code
}

// Each claim of the page is tried in each place, once wrong and once right: the table of
// the page says what is found, and the right code has no finding.
func TestClaims(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), strings.ReplaceAll(string(text), "=> ../..", "=> "+root))
	}
	write(t, filepath.Join(dir, "order/order.go"), source("order", "type Order struct{ ID string; Parts map[string]string; Message events.SQSMessage; Event events.SQSEvent }\nfunc NewKey(id string) idempotent.Key { return idempotent.Key{Operation: \"order\", Scope: \"s\", ID: id} }\n"))
	type cell struct {
		claim, place int
		wrong        bool
	}
	cells := map[string]cell{} // by file and line
	code := map[string]string{"near": "type Order = order.Order\n" + common, "far": "type Order = order.Order\n" + common}
	for n, c := range claims {
		f := frames[c.frame]
		for p := range places {
			for form, statements := range append([]string{c.wrong, c.right}, c.also...) {
				wrong, name := form == 0, fmt.Sprintf("C%dP%dF%d", n, p, form)
				helper, helperPackage := "Helper"+name, "near"
				called := helper
				if places[p] == "in another package" {
					helperPackage, called = "far", "far."+helper
				}
				fill := func(pkg, text string) {
					text = strings.NewReplacer("$S", statements, "$N", name, "$H", called, "$B", c.before, "$O", cmp.Or(c.options, "func(*idempotent.Operation) {}")).Replace(text)
					if pkg == "far" {
						text = strings.ReplaceAll(text, "newKey(", "order.NewKey(")
					}
					code[pkg] += text + "\n"
					cells[fmt.Sprintf("%s:%d", pkg, strings.Count(code[pkg], "\n"))] = cell{n, p, wrong}
				}
				fill("near", f.places[p])
				if p == 1 || p == 3 {
					called = helper
					fill(helperPackage, f.helper)
				}
			}
		}
	}
	offset := map[string]int{}
	for pkg, text := range code {
		whole := source(pkg, text)
		offset[pkg] = strings.Count(whole, "\n") - strings.Count(text, "\n")
		write(t, filepath.Join(dir, pkg+"/"+pkg+".go"), whole)
	}

	found := map[cell]bool{}
	for _, p := range analyze(t, dir) {
		for _, d := range p.Diagnostics {
			at := p.Package.Fset.Position(d.Pos)
			pkg := filepath.Base(filepath.Dir(at.Filename))
			c, ok := cells[fmt.Sprintf("%s:%d", pkg, at.Line-offset[pkg])]
			switch {
			case !ok:
				t.Errorf("%s:%d: %s", pkg, at.Line, d.Message)
			case !c.wrong:
				t.Errorf("a false finding about %s, %s, %s: %s", claims[c.claim].check, claims[c.claim].text, places[c.place], d.Message)
			case d.Category == claims[c.claim].check:
				found[c] = true
			}
		}
	}
	table := "| check | mistake | " + strings.Join(places, " | ") + " |\n" + strings.Repeat("| --- ", 2+len(places)) + "|\n"
	for n, c := range claims {
		table += "| " + c.check + " | " + c.text + " |"
		for p := range places {
			table += map[bool]string{true: " found |", false: " |"}[found[cell{n, p, true}]]
		}
		table += "\n"
	}
	page := filepath.Join("..", "docs", "oncevet.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	was := regexp.MustCompile(`(?m)^\| check \|.*\n(\|.*\n)*`)
	if now := was.ReplaceAllLiteral(text, []byte(table)); string(now) != string(text) {
		if !*update {
			t.Errorf("the table of the page is not what is found (-update writes it):\n%s", table)
		} else if err := os.WriteFile(page, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, check := range Checks {
		if !slices.ContainsFunc(claims, func(c claim) bool { return c.check == check }) {
			t.Errorf("%s has no claim", check)
		}
	}
}
