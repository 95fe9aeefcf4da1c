// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/ssa"
)

// unstablekey reports a part of a key that differs between a request and its retry.
func (v *vet) unstablekey(f *ssa.Function) {
	tell := func(pos token.Pos, what, why string) {
		v.report("unstablekey", pos, "the %s comes from %s, so each retry has another key and runs again; use an id of the client or of the work, which every retry repeats", what, why)
	}
	for _, b := range f.Blocks {
		for _, i := range b.Instrs {
			store, ok := i.(*ssa.Store)
			if !ok {
				continue
			}
			if field := fieldOf(store.Addr, "idempotent.Key"); field != "" {
				if why := v.unstable(store.Val); why != "" {
					tell(store.Pos(), "key's "+field, why)
				}
			}
			for of, fields := range rules {
				if field := fieldOf(store.Addr, of); slices.Contains(fields, field) {
					for _, rule := range v.callables(store.Val) {
						if why := v.unstableOf(rule); why != "" {
							tell(store.Pos(), "key's "+field, why)
						}
					}
				}
			}
		}
	}
	calls(f, func(call ssa.CallInstruction) {
		c := call.Common()
		if f := c.StaticCallee(); f != nil {
			for _, p := range v.summaryOf(f).KeyParams {
				if why := v.unstable(arguments(c)[p.Param-1]); why != "" {
					tell(call.Pos(), "key's "+p.Field, why)
				}
			}
		}
		switch name(callee(c)) {
		case "idempotent.KeyFrom", "idempotent.WholePayload":
			for _, rule := range v.callables(c.Args[1]) {
				for n := range rule.Signature.Results().Len() {
					for _, r := range returns(rule) {
						if why := v.unstable(r.Results[n]); why != "" {
							tell(r.Pos(), "key", why)
						}
					}
				}
			}
		}
	})
}

// keyParam is a parameter of a function, counted from 1, which becomes a field of a key.
type keyParam struct {
	Param int
	Field string
}

// keyParams returns the parameters of a function that it puts into keys, itself or
// through the functions that it calls.
func (v *vet) keyParams(f *ssa.Function) (list []keyParam) {
	add := func(value ssa.Value, field string) {
		t := tracer{v: v, seen: map[ssa.Value]bool{}}
		t.trace(value)
		for i, p := range f.Params {
			if k := (keyParam{i + 1, field}); slices.Contains(t.params, p) && !slices.Contains(list, k) {
				list = append(list, k)
			}
		}
	}
	for _, b := range f.Blocks {
		for _, i := range b.Instrs {
			switch i := i.(type) {
			case *ssa.Store:
				if field := fieldOf(i.Addr, "idempotent.Key"); field != "" {
					add(i.Val, field)
				}
			case ssa.CallInstruction:
				if called := i.Common().StaticCallee(); called != nil {
					for _, p := range v.summaryOf(called).KeyParams {
						add(arguments(i.Common())[p.Param-1], p.Field)
					}
				}
			}
		}
	}
	return list
}

// rules are fields that hold a function of which a key is made.
var rules = map[string][]string{
	"lambdabatch.Options":        {"ID", "Scope", "Fingerprint"},
	"lambdahttp.ScopeRule":       {"Of"},
	"lambdahttp.FingerprintRule": {"Of"},
}

// unstableOf returns why the first result of a function is unstable.
func (v *vet) unstableOf(f *ssa.Function) string { return v.summaryOf(f).Unstable }

// unstableResult computes what unstableOf returns for a function of this package.
func (v *vet) unstableResult(f *ssa.Function) (why string) {
	for _, r := range returns(f) {
		if why == "" && len(r.Results) > 0 {
			why = v.unstable(r.Results[0])
		}
	}
	return why
}

// unstable returns what makes a value differ from call to call, or "".
func (v *vet) unstable(value ssa.Value) string {
	t := tracer{v: v, seen: map[ssa.Value]bool{}}
	t.trace(value)
	return t.why
}

// tracer follows a value back to what it is made of.
type tracer struct {
	v    *vet
	seen map[ssa.Value]bool
	why  string
	// params are the parameters of the function of which the value is made.
	params []*ssa.Parameter
}

// filled looks for a call that fills a slice, or one of an array, with random bytes.
func (t *tracer) filled(value ssa.Value) {
	for _, r := range referrers(value) {
		switch r := r.(type) {
		case *ssa.Slice:
			t.filled(r)
		case *ssa.Call:
			if f := callee(&r.Call); randomRead.MatchString(name(f)) {
				t.why = f.Pkg().Name() + "." + f.Name()
			}
			origins(r.Call.Args[0], func(o ssa.Value) {
				if load, ok := o.(*ssa.UnOp); ok && placeOf(load.X).of == "crypto/rand.Reader" {
					t.why = "crypto/rand.Reader"
				}
			})
		}
	}
}

func (t *tracer) trace(value ssa.Value) {
	if t.why != "" || t.seen[value] {
		return
	}
	t.seen[value] = true
	switch x := value.(type) {
	case *ssa.Call:
		t.call(x)
	case *ssa.Extract:
		t.trace(x.Tuple)
	case *ssa.BinOp:
		if x.Op == token.ADD {
			t.trace(x.X)
			t.trace(x.Y)
			if rangesMap(x.Y) && copyOf(x.X, x) || rangesMap(x.X) && copyOf(x.Y, x) { // in a loop
				t.why = "the order of a map, which is random"
			}
		}
	case *ssa.Convert:
		t.trace(x.X)
	case *ssa.MakeSlice:
		t.filled(x)
	case *ssa.Parameter:
		t.params = append(t.params, x)
	case *ssa.Slice:
		t.filled(x)
		t.filled(x.X)
		t.trace(x.X)
	case *ssa.UnOp:
		t.field(x.X)
		t.stored(x)
		t.trace(x.X)
	case *ssa.IndexAddr:
		t.trace(x.X)
	case *ssa.Field:
		t.field(x)
	case *ssa.Alloc: // the address of a variable
		for _, s := range stored(x) {
			t.trace(s)
		}
		for _, r := range referrers(x) {
			if at, ok := r.(*ssa.IndexAddr); ok {
				for _, s := range storedBy(at) {
					t.trace(s)
				}
			}
		}
	case *ssa.Phi, *ssa.ChangeType, *ssa.ChangeInterface, *ssa.MakeInterface:
		t.stored(x)
	}
}

// stored traces what value is a copy of.
func (t *tracer) stored(value ssa.Value) {
	origins(value, func(o ssa.Value) { t.trace(o) })
}

// deliveries are fields that differ from delivery to delivery.
var deliveries = []struct{ of, field, what string }{
	{"github.com/aws/aws-lambda-go/events.SQSMessage", "MessageId", "an SQS message id, which a redrive and a sender's retry change"},
	{"github.com/aws/aws-lambda-go/events.SQSMessage", "ReceiptHandle", "a receipt handle"},
	{"github.com/aws/aws-lambda-go/lambdacontext.LambdaContext", "AwsRequestID", "the Lambda request id"},
	{"github.com/aws/aws-lambda-go/events.APIGatewayProxyRequestContext", "RequestID", "the gateway's request id"},
	{"github.com/aws/aws-lambda-go/events.APIGatewayV2HTTPRequestContext", "RequestID", "the gateway's request id"},
	{"github.com/aws/aws-lambda-go/events.LambdaFunctionURLRequestContext", "RequestID", "the request id of the function URL"},
}

// field notes a value that is such a field.
func (t *tracer) field(value ssa.Value) {
	for _, d := range deliveries {
		if fieldOf(value, d.of) == d.field {
			t.why = d.what
		}
	}
}

var (
	randomRead = regexp.MustCompile(`^(math/rand(/v2)?|crypto/rand)\..*Read$`)
	randoms    = regexp.MustCompile(`^(math/rand(/v2)?|crypto/rand)\.|^github\.com/google/uuid\.(New|NewString|NewRandom|NewUUID|NewV6|NewV7)$|^github\.com/(gofrs|satori)/(go\.)?uuid(/v\d)?\.NewV[1467]$|^github\.com/(oklog/ulid(/v2)?|rs/xid|segmentio/ksuid)\.(Make|New|MustNew)$`)
	// transparent are packages whose functions compute their result from their
	// arguments only.
	transparent = regexp.MustCompile(`^(strconv|fmt|strings|bytes|time|slices|maps|encoding/\w+|crypto/(sha\d+|md5)|hash/\w+|idempotent|idempotent/driver|github\.com/google/uuid)\.`)
	day         = regexp.MustCompile(`15|03|04|05|PM`)
)

func (t *tracer) call(call *ssa.Call) {
	c := &call.Call
	if b, ok := c.Value.(*ssa.Builtin); ok {
		if b.Name() == "append" {
			for _, a := range c.Args {
				t.trace(a)
			}
			if t.why == "" && appendsMap(c.Args) && !isSorted(call) {
				t.why = "the order of a map, which is random"
			}
		}
		return
	}
	f := callee(c)
	switch n := name(f); {
	case n == "time.Now", n == "time.Since", n == "time.Until":
		t.why = n
	case randoms.MatchString(n):
		t.why = f.Pkg().Name() + "." + f.Name()
	case n == "maps.Keys", n == "maps.Values", n == "maps.All":
		t.why = "the order of a map, which is random"
	case strings.HasPrefix(n, "slices.Sorted"), n == "time.(Time).Truncate", n == "time.(Time).Round":
	case n == "time.(Time).Format":
		if layout, ok := text(arguments(c)[1]); !ok || day.MatchString(layout) {
			t.trace(arguments(c)[0])
		}
	case transparent.MatchString(n):
		for _, a := range arguments(c) {
			t.trace(a)
		}
	case c.StaticCallee() != nil:
		t.why = t.v.unstableOf(t.v.source(c.StaticCallee()))
		for _, a := range c.Args {
			if isString(a.Type()) && isString(call.Type()) {
				t.trace(a)
			}
		}
	}
}

func isString(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

// rangesMap reports whether a value is a key or an element that a loop over a map
// yields, or made of one.
func rangesMap(value ssa.Value) bool {
	found := false
	origins(value, func(o ssa.Value) {
		e, ok := o.(*ssa.Extract)
		if !ok {
			return
		}
		if next, ok := e.Tuple.(*ssa.Next); ok && !next.IsString {
			found = true
		}
	})
	return found
}

// appendsMap reports whether an append adds what a loop over a map yields.
func appendsMap(args []ssa.Value) bool {
	list, _ := variadic(args[1])
	return slices.ContainsFunc(list, rangesMap)
}

// isSorted reports whether a slice, or a copy of it, is passed to a function that
// sorts.
func isSorted(value ssa.Value) bool {
	seen := map[ssa.Value]bool{}
	var visit func(value ssa.Value) bool
	visit = func(value ssa.Value) bool {
		if seen[value] {
			return false
		}
		seen[value] = true
		return slices.ContainsFunc(referrers(value), func(i ssa.Instruction) bool {
			switch i := i.(type) {
			case *ssa.Phi, *ssa.ChangeType, *ssa.MakeInterface:
				return visit(i.(ssa.Value))
			case *ssa.Call:
				n := name(callee(&i.Call))
				return strings.HasPrefix(n, "sort.") || strings.HasPrefix(n, "slices.Sort")
			}
			return false
		})
	}
	return visit(value)
}

// volatile are events that differ between two deliveries of one request.
var volatile = regexp.MustCompile(`^github\.com/aws/aws-lambda-go/events\.(APIGatewayProxyRequest|APIGatewayV2HTTPRequest|LambdaFunctionURLRequest|ALBTargetGroupRequest|SQSEvent|SQSMessage|KinesisEvent|DynamoDBEvent|KafkaEvent)$`)

// volatileIn returns the name of such an event that t is or contains, or "".
func volatileIn(t types.Type) string { return volatileWithin(t, map[types.Type]bool{}) }

func volatileWithin(t types.Type, seen map[types.Type]bool) string {
	t = types.Unalias(t)
	if seen[t] {
		return ""
	}
	seen[t] = true
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != nil && volatile.MatchString(n.Obj().Pkg().Path()+"."+n.Obj().Name()) {
		return n.Obj().Name()
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return volatileWithin(u.Elem(), seen)
	case *types.Slice:
		return volatileWithin(u.Elem(), seen)
	case *types.Struct:
		for i := range u.NumFields() {
			if !strings.Contains(u.Tag(i), `json:"-"`) {
				if found := volatileWithin(u.Field(i).Type(), seen); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

const changes = "which has a request id, a time or a receipt that differs in each delivery: every retry is refused as another request; compute it from the fields that a retry repeats, with FingerprintOf"

// wholeevent reports a request of Wrap whose fingerprint is made of a whole event.
func (v *vet) wholeevent(g *guarded) {
	if g.key == nil {
		return
	}
	event := volatileIn(g.call.Common().StaticCallee().TypeArgs()[0])
	if event == "" {
		return
	}
	keys := v.callables(g.key)
	whole := len(keys) > 0
	for _, k := range keys {
		whole = whole && !v.summaryOf(k).Fingerprints
	}
	origins(g.key, func(o ssa.Value) {
		if call, ok := o.(*ssa.Call); ok && name(callee(&call.Call)) == "idempotent.KeyFrom" {
			whole = true
		}
	})
	if whole {
		v.report("wholeevent", g.call.Pos(), "the key sets no fingerprint, so it is that of the whole %s, %s", event, changes)
	}
}

// fingerprints reports keys and fingerprints that are computed from a whole event.
func (v *vet) fingerprints(f *ssa.Function) {
	calls(f, func(call ssa.CallInstruction) {
		c := call.Common()
		switch name(callee(c)) {
		case "idempotent.WholePayload":
			if event := volatileIn(c.StaticCallee().TypeArgs()[0]); event != "" {
				v.report("wholeevent", call.Pos(), "the key is a whole %s, %s", event, changes)
			}
		case "idempotent.FingerprintOf", "idempotent.FingerprintJSON":
			origins(c.Args[0], func(o ssa.Value) {
				if e, ok := o.(*ssa.Extract); ok {
					if made, ok := e.Tuple.(*ssa.Call); ok && name(callee(&made.Call)) == "encoding/json.Marshal" {
						origins(made.Call.Args[0], func(o ssa.Value) { v.wholefingerprint(call.Pos(), o.Type()) })
					}
				}
				v.wholefingerprint(call.Pos(), o.Type())
			})
		}
	})
}

func (v *vet) wholefingerprint(pos token.Pos, t types.Type) {
	if event := volatileIn(t); event != "" {
		v.report("wholeevent", pos, "the fingerprint is that of a whole %s, %s", event, changes)
	}
}

// redeliveries is how long a source of Wrap delivers again, and what to write.
var redeliveries = map[string]struct {
	time time.Duration
	name string
}{
	"lambdabatch.EventBridge": {30 * time.Hour, "lambdabatch.EventBridgeRedelivery"},
	"lambdabatch.SNS":         {24*24*time.Hour + 6*time.Hour, "lambdabatch.SNSRedelivery"},
	"lambdabatch.S3":          {6 * time.Hour, "lambdabatch.AsyncRedelivery"},
	"lambdabatch.AsyncInvoke": {6 * time.Hour, "lambdabatch.AsyncRedelivery"},
}

// retention reports outcomes that expire before their source has stopped to deliver.
func (v *vet) retention(g *guarded) {
	set := time.Duration(g.set.Retention)
	if set == 0 && g.set.Default {
		set = 24 * time.Hour
	}
	origins(g.key, func(o ssa.Value) {
		call, ok := o.(*ssa.Call)
		if !ok {
			return
		}
		source, ok := redeliveries[name(callee(&call.Call))]
		if ok && set != 0 && set < source.time {
			v.report("retention", g.call.Pos(), "outcomes expire after %s, and the source delivers again for up to %s: a late delivery runs again; set Operation.Retention to %s", set, source.time, source.name)
		}
	})
}

// stepname reports names that do not identify one step: an unstable name, a name that
// is used twice, and a step inside a step.
func (v *vet) stepname(f *ssa.Function) {
	calls(f, func(call ssa.CallInstruction) {
		c := call.Common()
		n := name(callee(c))
		if isStep(n) || isCommitStep(n) {
			if why := v.unstable(c.Args[1]); why != "" {
				v.report("stepname", call.Pos(), "the name of the step comes from %s: a retry does not find the step, and runs it again; use a constant, or an id from the request", why)
			}
		}
		if isStep(n) {
			for _, step := range v.callables(c.Args[2]) {
				if inner := v.summaryOf(step).Steps; len(inner) > 0 {
					v.report("stepname", call.Pos(), "step %q (%s) is inside a step, and is refused; run one after the other", inner[0].Name, inner[0].At)
				}
			}
		}
		used := v.callSummary(call).Steps
		after(call, onSuccess(errorOf(call)), func(i ssa.Instruction) {
			next, ok := i.(ssa.CallInstruction)
			if !ok {
				return
			}
			for _, u := range v.callSummary(next).Steps {
				at := slices.IndexFunc(used, func(o stepUse) bool { return o.Name == u.Name })
				if u.Name != "" && at >= 0 {
					v.report("stepname", next.Pos(), "step %q has run before (%s): this call returns its stored result and does nothing; use another name, such as %q", u.Name, used[at].At, u.Name+"/2")
				}
			}
		})
	})
}

// undeclaredsteps reports steps that Operation.Steps of their handler does not list.
func (v *vet) undeclaredsteps(g *guarded) {
	if g.set.Steps == nil {
		return
	}
	undeclared := func(step string) bool {
		return step != "" && !slices.ContainsFunc(g.set.Steps, func(s string) bool { return step == s || strings.HasPrefix(step, s+"/") })
	}
	const rule = "is not in Operation.Steps (%s) and is refused; add it there"
	listed := strings.Join(g.set.Steps, ", ")
	for _, h := range g.handlers {
		if len(h.Blocks) > 0 {
			continue
		}
		for _, s := range v.summaryOf(h).Steps { // of a handler of another package
			if undeclared(s.Name) {
				v.report("stepname", g.call.Pos(), "step %q (%s) "+rule, s.Name, s.At, listed)
			}
		}
	}
	for f := range v.reach(g.handlers, true) {
		calls(f, func(call ssa.CallInstruction) {
			inner := v.runs(call)
			if slices.ContainsFunc(inner, func(f *ssa.Function) bool { return len(f.Blocks) > 0 }) {
				return // reported there
			}
			for _, s := range v.callSummary(call).Steps {
				if undeclared(s.Name) {
					v.report("stepname", call.Pos(), "step %q (%s) "+rule, s.Name, s.At, listed)
				}
			}
		})
	}
}
