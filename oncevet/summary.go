// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go/token"

	"golang.org/x/tools/go/ssa"
)

// summary is what a call of a function does, as a fact for packages that import it.
// Steps have their own functions, whose requests are not those of the caller.
type summary struct {
	Sends        []*send
	Steps        []stepUse
	Commits      bool     // it commits the outcome of its handler
	Keyed        bool     // it uses a downstream key
	Lost         []string // calls that get a context without the handler's values
	Leaves       []string // goroutines with the handler's context that it does not wait for
	KeyParams    []keyParam
	Unstable     string   // what makes its first result differ from call to call
	Declares     string   // "Final" or "NotExecuted" if its error can be one
	Fingerprints bool     // it sets the fingerprint of a key
	Settings     settings // of options that it gets
	Separates    bool     // it runs steps or guarded handlers, so functions that it gets can be these
}

// stepUse is a step that a function runs. The name is empty if it is not constant.
type stepUse struct{ Name, At string }

// AFact implements analysis.Fact.
func (*summary) AFact() {}

// most limits the entries of each list of a summary. Findings name one of them.
const most = 8

func (s *summary) add(o *summary) {
	for _, other := range o.Sends {
		known := slices.ContainsFunc(s.Sends, func(x *send) bool { return x.What == other.What && x.At == other.At && x.Verb == other.Verb })
		if !known && len(s.Sends) < most {
			s.Sends = append(s.Sends, other)
		}
	}
	s.Steps = limited(append(s.Steps, o.Steps...))
	s.Lost = limited(append(s.Lost, o.Lost...))
	s.Leaves = limited(append(s.Leaves, o.Leaves...))
	s.Commits, s.Keyed = s.Commits || o.Commits, s.Keyed || o.Keyed
	s.Fingerprints, s.Separates = s.Fingerprints || o.Fingerprints, s.Separates || o.Separates
}

func limited[T any](list []T) []T { return list[:min(len(list), most)] }

// summaryOf returns the summary of a function. If a function calls itself, the inner
// calls count as empty.
func (v *vet) summaryOf(f *ssa.Function) *summary {
	f = v.source(f)
	if s, ok := v.summaries[f]; ok {
		return s
	}
	s := new(summary)
	v.summaries[f] = s
	if len(f.Blocks) == 0 {
		if d := declared(f); d != nil {
			v.pass.ImportObjectFact(d, s)
		}
		return s
	}
	for _, b := range f.Blocks {
		for _, i := range b.Instrs {
			s.Keyed = s.Keyed || v.usesKey(i)
			s.Fingerprints = s.Fingerprints || setsFingerprint(i)
			if call, ok := i.(ssa.CallInstruction); ok {
				v.addCall(s, call)
			}
		}
	}
	s.KeyParams = v.keyParams(f)
	s.Unstable = v.unstableResult(f)
	s.Declares = v.declares(f)
	s.Settings = v.settingsOf(f)
	return s
}

// addCall adds what a call does to the summary of its function.
func (v *vet) addCall(s *summary, call ssa.CallInstruction) {
	n := name(callee(call.Common()))
	_, guard := guards[n]
	s.Separates = s.Separates || guard || isStep(n)
	s.Commits = s.Commits || isCommit(n)
	if v.lost(call) {
		s.Lost = limited(append(s.Lost, v.describe(call)))
	}
	if v.leaves(call) {
		s.Leaves = limited(append(s.Leaves, v.at(call.Pos())))
	}
	run := v.callSummary(call)
	if _, deferred := call.(*ssa.Defer); deferred {
		run.Lost = nil // it may have a new context
	}
	s.add(run)
}

// callSummary returns the summary of what a call runs, see runs.
func (v *vet) callSummary(call ssa.CallInstruction) *summary {
	sum := new(summary)
	for _, f := range v.runs(call) {
		sum.add(v.summaryOf(f))
	}
	if n := name(callee(call.Common())); isStep(n) || isCommitStep(n) {
		step, _ := text(call.Common().Args[1])
		sum.Steps = []stepUse{{step, v.at(call.Pos())}}
	}
	sum.Sends = v.sends(call) // with the methods that this call decides
	return sum
}

// runs returns the functions that a call runs: the function that it names, and
// function literals among its arguments, unless these can be steps or handlers.
func (v *vet) runs(call ssa.CallInstruction) (list []*ssa.Function) {
	c := call.Common()
	n := name(callee(c))
	if _, guard := guards[n]; guard || isStep(n) {
		return nil
	}
	if f := c.StaticCallee(); f != nil {
		list = append(list, v.source(f))
		if v.summaryOf(f).Separates {
			return list
		}
	} else if !c.IsInvoke() {
		list = append(list, v.callables(c.Value)...)
	}
	for _, a := range c.Args {
		if m, ok := a.(*ssa.MakeClosure); ok {
			list = append(list, v.source(m.Fn.(*ssa.Function)))
		} else if f, ok := a.(*ssa.Function); ok && f.Parent() != nil {
			list = append(list, f)
		}
	}
	return list
}

// usesKey reports whether an instruction uses a downstream key, for more than a log line,
// or sends a stable key of the handler's own.
func (v *vet) usesKey(i ssa.Instruction) bool {
	for _, o := range i.Operands(nil) {
		f, _ := (*o).(*ssa.Function)
		switch name(declared(f)) {
		case "idempotent.DownstreamKey", "idempotent/driver.(RecordID).DownstreamKey", "idempotent/driver.(RecordID).StepKey":
			call, ok := i.(*ssa.Call)
			return ok && slices.ContainsFunc(used(call), usedElsewhere)
		}
	}
	call, ok := i.(ssa.CallInstruction)
	if !ok {
		return false
	}
	switch name(callee(call.Common())) {
	case "net/http.(Header).Set", "net/http.(Header).Add":
		args := arguments(call.Common())
		header, _ := text(args[1])
		return strings.Contains(strings.ToLower(header), "idempotency") && v.unstable(args[2]) == ""
	}
	return false
}

func setsFingerprint(i ssa.Instruction) bool {
	s, ok := i.(*ssa.Store)
	if !ok {
		return false
	}
	return fieldOf(s.Addr, "idempotent.Key") == "Fingerprint"
}

// carrier is the fact of a package in which a transport adds the downstream key: it
// passes the function DownstreamKey on, or calls it in a RoundTrip.
type carrier struct{}

// AFact implements analysis.Fact.
func (*carrier) AFact() {}

// carries reports whether this package or one that it imports has such a transport.
func (v *vet) carries() bool {
	if len(v.pass.AllPackageFacts()) > 0 {
		return true
	}
	for _, f := range v.funcs {
		if f.Name() == "RoundTrip" && v.summaryOf(f).Keyed {
			return true
		}
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				if v.passesKeyOn(i) {
					return true
				}
			}
		}
	}
	return false
}

// passesKeyOn reports whether an instruction uses DownstreamKey without calling it.
func (v *vet) passesKeyOn(i ssa.Instruction) bool {
	call, isCall := i.(ssa.CallInstruction)
	for _, o := range i.Operands(nil) {
		f, ok := (*o).(*ssa.Function)
		if ok && name(declared(f)) == "idempotent.DownstreamKey" && !(isCall && *o == call.Common().Value) {
			return true
		}
	}
	return false
}

// describe names a call with its place.
func (v *vet) describe(call ssa.CallInstruction) string {
	return fmt.Sprintf("%s (%s)", short(call), v.at(call.Pos()))
}

// short names the function of a call as code does: "http.Client.Do", "pay".
func short(call ssa.CallInstruction) string {
	f := callee(call.Common())
	if f == nil {
		return "a function"
	}
	if recv := f.Signature().Recv(); recv != nil {
		return strings.TrimPrefix(typeName(recv.Type())+"."+f.Name(), ".")
	}
	return f.Name()
}

// at returns the file and line of a position.
func (v *vet) at(pos token.Pos) string {
	p := v.pass.Fset.Position(pos)
	return fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line)
}
