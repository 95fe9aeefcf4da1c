// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

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
