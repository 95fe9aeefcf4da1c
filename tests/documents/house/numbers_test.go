// SPDX-License-Identifier: Apache-2.0

package house

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
)

var update = flag.Bool("update", false, "write the tables of docs/reports/limits.md instead of comparing them")

// configured are the packages whose options have defaults, and whose constants limit
// something.
var configured = []string{"idempotent", "lambdahttp", "lambdabatch", "lambdadurable", "idempotencyclient", "dynamostore", "dynamostore/powertools", "boltstore", "infra"}

// limits are the constants with these names: what users may have, or "" if users do
// not meet the limit.
var limits = map[string]string{
	"idempotent.maxOperation":       "bytes in the name of an operation",
	"idempotent.maxStepName":        "bytes in the name of a step",
	"idempotent.maxStepResult":      "bytes of one step's result, as stored",
	"idempotent.maxSteps":           "bytes of all steps of a record; each counts its name, its result and 128 bytes",
	"idempotent.maxResult":          "bytes of a result that is stored, before compression",
	"idempotent.maxResultVersion":   "bytes of `Operation.ResultVersion`",
	"idempotent.leastReserve":       "the least `Operation.DeadlineReserve`",
	"idempotent.maxRef":             "bytes of a reference (`Execution.SetRef`; `Key.Ref` is cut)",
	"idempotent.maxCorrection":      "bytes of the actor, and of the reason, of a `Correction`",
	"idempotent.maxRequestID":       "bytes of a request id that are stored (`Options.RequestID`)",
	"idempotent.maxStepNames":       "bytes of all names of `Operation.Steps` together",
	"idempotent.maxWaiting":         "requests of a guard that wait for one key (`WaitFor`)",
	"idempotent.maxFailures":        "calls of a resolver that fail in a row before the run leaves the rest of an operation",
	"idempotent.leastShare":         "for a record at least, if a run of the reconciler has little time",
	"idempotent.maxExact":           "entries of the list of a reconciler, up to which its counts are exact",
	"idempotent.maxClaimRounds":     "",
	"idempotent.maxRounds":          "",
	"lambdahttp.maxRequestID":       "bytes of a request id that the client chooses",
	"lambdahttp.maxDeflated":        "bytes of a compressed request body that is compared",
	"lambdahttp.maxInflated":        "bytes of that body without compression",
	"lambdahttp.maxResponse":        "bytes of a response as JSON that Lambda returns, 1 KiB of it for headers of the package",
	"lambdahttp.maxResponseALB":     "bytes of such a response to a load balancer",
	"lambdahttp.leastRetention":     "of `Profile.MinRetention` at least",
	"lambdabatch.SQSRedelivery":     "`Redelivery` of a queue",
	"lambdabatch.StreamRedelivery":  "`Redelivery` of a stream of Kinesis or DynamoDB",
	"lambdabatch.KafkaRedelivery":   "`Redelivery` of a topic",
	"lambdabatch.longestVisibility": "for which a message is hidden (`Visibility`)",
	"lambdabatch.longestGrown":      "to which the wait for an unknown outcome doubles",
	"lambdadurable.leastRetention":  "",
	"idempotencyclient.maxProblem":  "bytes of a response that are read for a problem",
	"idempotencyclient.maxAhead":    "",
	"dynamostore.maxItem":           "bytes of an item; a larger result is stored in several",
	"dynamostore.maxChunked":        "bytes of a result in several items",
	"dynamostore.maxChunks":         "",
	"dynamostore.maxPrefix":         "bytes of `Options.Prefix`",
	"dynamostore.maxKeyName":        "bytes in the name of a key attribute",
	"dynamostore.maxTransactItems":  "items in a transaction besides the record",
	"dynamostore.maxTransactSize":   "bytes of a transaction",
	"dynamostore.longestRead":       "of reading in one call of `Store.Abandoned`",
	"dynamostore.maxAhead":          "",
	"dynamostore.shortestTry":       "",
	"infra.longestQueueRetention":   "",
}

// repeated are the places that repeat a number without the name beside it.
var repeated = []struct{ file, words, name string }{
	{"README.md", "is stored: %s by default", "idempotent.Operation.Retention"},
	{"docs/http-keys.md", "The default retention is %s after", "idempotent.Operation.Retention"},
	{"docs/batch.md", "whose default of %s is too short", "idempotent.Operation.Retention"},
	{"docs/batch.md", "by default %s.", "lambdabatch.sqsOnce"},
	{"docs/concepts.md", "%s before the deadline", "idempotent.Operation.DeadlineReserve"},
	{"docs/concepts.md", "of Lambda %s ```", "idempotent.Operation.LeaseMargin"},
	{"docs/operate.md", "`--give-up-after` (%s)", "idempotent.ReconcileOptions.GiveUpAfter"},
	{"docs/concepts.md", "A result above %s is not stored", "idempotent.maxResult"},
	{"docs/steps.md", "One result may have up to %s", "idempotent.maxStepResult"},
	{"docs/steps.md", "all steps together up to %s", "idempotent.maxSteps"},
	{"docs/http-keys.md", "more than %s of compressed", "lambdahttp.maxDeflated"},
	{"docs/http-keys.md", "or %s of uncompressed", "lambdahttp.maxInflated"},
	{"idempotent/reconcile.go", "list ends, when %s entries have", "idempotent.maxExact"},
	{"idempotent/report.go", "has more than %s entries.", "idempotent.maxExact"},
	{"docs/reports/scale.md", "If more than %s records wait", "idempotent.maxExact"},
	{"idempotent/options.go", "At most %s requests of a guard wait", "idempotent.maxWaiting"},
	{"idempotent/options.go", "at most %s of valid UTF-8", "idempotent.maxResultVersion"},
	{"idempotent/execution.go", "longer than %s or not valid UTF-8", "idempotent.maxRef"},
	{"idempotent/correct.go", "longer than %s or not valid UTF-8", "idempotent.maxCorrection"},
	{"idempotent/key.go", "1 to %s of printable", "idempotent.maxOperation"},
	{"idempotent/key.go", "longer than %s\"", "idempotent.maxOperation"},
	{"idempotent/step.go", "may have up to %s. All steps", "idempotent.maxStepResult"},
	{"idempotent/step.go", "together may have up to %s,", "idempotent.maxSteps"},
	{"idempotent/step.go", "the steps of a record have more than %s,", "idempotent.largeSteps"},
	{"docs/cost.md", "the steps of a record pass %s,", "idempotent.largeSteps"},
	{"dynamostore/abandoned.go", "for at most %s, and", "dynamostore.longestRead"},
	{"dynamostore/transact.go", "may have %s items in addition", "dynamostore.maxTransactItems"},
	{"dynamostore/transact.go", "to the record, and %s with it", "dynamostore.maxTransactSize"},
	{"lambdahttp/fingerprint.go", "up to %s of compressed", "lambdahttp.maxDeflated"},
	{"infra/terraform/alarms/variables.tf", "Default: %s, or three times the interval", "infra.IdempotencyAlarmsProps.OldestUnknown"},
	{"infra/terraform/alarms/variables.tf", "of five minutes. Default: %s.", "infra.IdempotencyAlarmsProps.StoreErrorRate"},
	{"infra/terraform/alarms/variables.tf", "with another payload. Default: %s.", "infra.IdempotencyAlarmsProps.MisuseRate"},
}

// The tables of docs/reports/limits.md are what the code does. Comments and pages that repeat
// a number of it repeat the right one.
func TestNumbers(t *testing.T) {
	t.Parallel()
	var defaults, bounds strings.Builder
	defaults.WriteString("| option | default |\n| --- | --- |\n")
	bounds.WriteString("| package | limit | |\n| --- | --: | --- |\n")
	values := map[string][]string{} // by package and name
	missing := maps.Clone(limits)
	for _, dir := range configured {
		p := loadPackage(t, dir)
		pkg := p.pkg.Name() + "."
		set := p.defaults()
		if dir == "infra" {
			maps.Copy(set, thresholds(t))
		}
		for _, name := range p.options(t, set) {
			values[pkg+name] = set[name]
			fmt.Fprintf(&defaults, "| `%s` | %s |\n", pkg+name, strings.Join(set[name], " or "))
		}
		for _, name := range p.pkg.Scope().Names() {
			c, ok := p.pkg.Scope().Lookup(name).(*types.Const)
			if !ok || c.Val().Kind() != constant.Int {
				continue
			}
			of, listed := limits[pkg+name]
			values[pkg+name] = []string{number(c.Val(), c.Type(), strings.HasPrefix(of, "bytes") || strings.HasPrefix(name, "large"))}
			delete(missing, pkg+name)
			if of != "" {
				fmt.Fprintf(&bounds, "| `%s` | %s | %s |\n", p.pkg.Name(), values[pkg+name][0], strings.TrimPrefix(of, "bytes "))
			} else if !listed && limiting.MatchString(name) {
				t.Errorf("%s%s is not among the limits", pkg, name)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("these limits do not exist: %v", missing)
	}
	const page = "../../../docs/reports/limits.md"
	kit.Part(t, page, "defaults", defaults.String(), *update)
	kit.Part(t, page, "limits", bounds.String(), *update)
	for _, r := range repeated {
		words := fmt.Sprintf(r.words, strings.Join(values[r.name], " or "))
		if !strings.Contains(plain(flat(strings.ReplaceAll(read(t, r.file), "//", ""))), words) {
			t.Errorf("%s does not say %q (%s)", r.file, words, r.name)
		}
	}
	agreeBesideNames(t, values)
}

// limiting matches the names of constants that must be among the limits.
var limiting = regexp.MustCompile(`^(max|longest|least|shortest)[A-Z]`)

// agreeBesideNames fails t if a page has an option, or an exported constant, next to
// another value than its default.
func agreeBesideNames(t *testing.T, values map[string][]string) {
	t.Helper()
	short := map[string][]string{} // without the package and the type
	for name, v := range values {
		if name = name[strings.LastIndex(name, ".")+1:]; strings.Contains(v[0], " ") { // with a unit
			short[name] = append(short[name], v...)
		}
	}
	seen := 0
	for _, name := range tracked(t, ".md") {
		if strings.HasPrefix(name, "docs/adr/") || name == "CHANGELOG.md" || name == "docs/reports/limits.md" {
			continue
		}
		for _, m := range besideName.FindAllStringSubmatch(flat(read(t, name)), -1) {
			option, says := cmp.Or(m[1], m[4]), plain(cmp.Or(m[2], m[3]))
			if option = option[strings.LastIndex(option, ".")+1:]; short[option] == nil {
				continue
			}
			if seen++; !slices.Contains(short[option], says) {
				t.Errorf("%s says %q; the default is %s", name, m[0], strings.Join(short[option], " or "))
			}
		}
	}
	if seen < 12 {
		t.Errorf("pages name only %d options with their defaults", seen)
	}
}

// besideName matches a value next to the name of an option: `Name`, 7 days; `Name` | 7
// days; 7 days (`Name`); 7 days | `Name`.
var besideName = regexp.MustCompile("`([A-Za-z.]+)`(?:,| \\|) (" + valueText + ")|(" + valueText + ")(?: \\(| \\| )`([A-Za-z.]+)`")

const valueText = `[0-9][0-9,]* (?:ms|s|seconds|min|minutes?|h|hours?|days|KB|KiB|MB|MiB)\b`

var inWords = regexp.MustCompile(`\b[0-9][0-9,]* (seconds|minutes?|hours?|KB|MB)\b`)

// plain returns times and sizes as number writes them.
func plain(says string) string {
	return inWords.ReplaceAllStringFunc(says, strings.NewReplacer(
		"seconds", "s", "minutes", "min", "minute", "min", "hours", "h", "hour", "h", "KB", "KiB", "MB", "MiB").Replace)
}

// configuring matches the types of options.
var configuring = regexp.MustCompile(`(Options|Operation|Props)$`)

// sized matches the options that are numbers of bytes.
var sized = regexp.MustCompile(`Bytes$|Body$`)

// defaults returns the numbers that the package sets options to, by Type.Field. An
// option that is also set to another option or argument has no number as default.
func (s *sources) defaults() map[string][]string {
	set, varies := map[string][]string{}, map[string]bool{}
	add := func(field, value ast.Expr) {
		selector, ok := field.(*ast.SelectorExpr)
		if !ok {
			return
		}
		holder := s.info.Types[selector.X].Type
		if pointer, ok := holder.(*types.Pointer); ok {
			holder = pointer.Elem()
		}
		named, ok := holder.(*types.Named)
		if !ok || named.Obj().Pkg() != s.pkg || !configuring.MatchString(named.Obj().Name()) {
			return
		}
		if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 2 {
			switch types.ExprString(call.Fun) {
			case "cmp.Or":
				value = call.Args[1]
			case "max": // at least that
				value = call.Args[0]
			}
		}
		name, v := named.Obj().Name()+"."+selector.Sel.Name, s.info.Types[value]
		switch {
		case v.Value == nil:
			varies[name] = true
			return
		case constant.ToInt(v.Value).Kind() != constant.Int || constant.Sign(v.Value) <= 0:
			return // no number, or one that switches something off
		}
		set[name] = append(set[name], number(constant.ToInt(v.Value), v.Type, sized.MatchString(name)))
	}
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt: // o.Field = value, o.Field = cmp.Or(o.Field, value)
				if len(n.Lhs) == 1 && len(n.Rhs) == 1 {
					add(n.Lhs[0], n.Rhs[0])
				}
			case *ast.CallExpr: // or(props.Field, value), lengthOf(props.Field, value)
				if name := types.ExprString(n.Fun); len(n.Args) == 2 && (name == "or" || name == "lengthOf") {
					add(n.Args[0], n.Args[1])
				}
			case *ast.CompositeLit: // {&o.Field, value}
				if len(n.Elts) == 2 {
					if address, ok := n.Elts[0].(*ast.UnaryExpr); ok && address.Op == token.AND {
						add(address.X, n.Elts[1])
					}
				}
			}
			return true
		})
	}
	maps.DeleteFunc(set, func(name string, _ []string) bool { return varies[name] })
	return set
}

// thresholds returns the defaults of the options that replace a threshold of the alarms.
func thresholds(t *testing.T) map[string][]string {
	t.Helper()
	var catalogue struct {
		Alarms []struct {
			Name      string
			Threshold float64
		}
	}
	if err := json.Unmarshal([]byte(read(t, "infra/terraform/alarms/catalogue.json")), &catalogue); err != nil {
		t.Fatal(err)
	}
	set := map[string][]string{}
	for _, a := range catalogue.Alarms {
		switch said := fmt.Sprint(a.Threshold); a.Name {
		case "StoreErrors":
			set["IdempotencyAlarmsProps.StoreErrorRate"] = []string{said}
		case "Misuse":
			set["IdempotencyAlarmsProps.MisuseRate"] = []string{said}
		case "OldestUnknown":
			set["IdempotencyAlarmsProps.OldestUnknown"] = []string{fmt.Sprintf("%v min", a.Threshold/60)}
		}
	}
	return set
}

var documented = regexp.MustCompile(`Default: ([0-9]+(?:,[0-9]{3})*(?: (?:ms|s|min|h|days|MiB)\b)?)`)

// options returns the options that have a default, in the order of the code. It
// fails t if the comment of one contains another number.
func (s *sources) options(t *testing.T, set map[string][]string) (names []string) {
	t.Helper()
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok || !configuring.MatchString(spec.Name.Name) {
				return true
			}
			for _, f := range fields.Fields.List {
				if _, ok := f.Type.(*ast.FuncType); ok || len(f.Names) != 1 {
					continue
				}
				name := spec.Name.Name + "." + f.Names[0].Name
				if set[name] != nil {
					names = append(names, name)
				}
				m := documented.FindStringSubmatch(plain(flat(f.Doc.Text())))
				if m != nil && !slices.Contains(set[name], m[1]) && m[1] != "0" {
					t.Errorf("%s.%s: the comment says %q; the default is %q", s.pkg.Name(), name, m[0], set[name])
				}
			}
			return true
		})
	}
	if len(names) != len(set) {
		t.Errorf("%s has the options %v; their defaults are %v", s.pkg.Name(), names, set)
	}
	return names
}

// number writes a time, a number of bytes or another number for people.
func number(v constant.Value, of types.Type, bytes bool) string {
	n, _ := constant.Int64Val(v)
	if d := time.Duration(n); of.String() == "time.Duration" {
		for _, u := range []struct {
			name        string
			least, unit time.Duration
		}{{"days", 48 * time.Hour, 24 * time.Hour}, {"h", time.Hour, time.Hour}, {"min", time.Minute, time.Minute}, {"s", time.Second, time.Second}} {
			if d >= u.least && d%u.unit == 0 {
				return fmt.Sprintf("%d %s", d/u.unit, u.name)
			}
			if d >= 48*time.Hour {
				return fmt.Sprintf("%d days and %d h", d/u.unit, d%u.unit/time.Hour)
			}
		}
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	switch {
	case bytes && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case bytes && n >= 4<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	case bytes:
		return thousands(n) + " bytes"
	}
	return thousands(n)
}

func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
