// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// lostcontext and afterexit report what a handler runs outside its own context, in
// the functions that handlers and steps reach.
func (v *vet) contexts(reached map[*ssa.Function]bool) {
	const lost = "gets a context without the handler's deadline and key: it can run after Lambda has killed the handler's lease, and DownstreamKey is random in it; pass the handler's context"
	const leaves = "goroutine continues after the handler has returned: Lambda freezes it, and its steps and commits are refused; wait for it before the handler returns"
	for f := range reached {
		calls(f, func(call ssa.CallInstruction) {
			for _, l := range v.lostIn(call) {
				v.report("lostcontext", l.Pos(), "%s %s", short(l), lost)
			}
			if v.leaves(call) {
				v.report("afterexit", call.Pos(), "the %s", leaves)
			}
			for _, inner := range v.runs(call) {
				if len(inner.Blocks) > 0 {
					continue // reported there
				}
				sum := v.summaryOf(inner)
				if len(sum.Lost) > 0 {
					v.report("lostcontext", call.Pos(), "%s calls %s, which %s", short(call), sum.Lost[0], lost)
				}
				if len(sum.Leaves) > 0 {
					v.report("afterexit", call.Pos(), "%s starts a goroutine (%s): the %s", short(call), sum.Leaves[0], leaves)
				}
			}
		})
	}
}

// lostIn returns the calls that get the result of call, if that is a new context.
func (v *vet) lostIn(call ssa.CallInstruction) (list []ssa.CallInstruction) {
	switch name(callee(call.Common())) {
	case "context.Background", "context.TODO":
	default:
		return nil
	}
	seen := map[ssa.Value]bool{}
	var visit func(value ssa.Value)
	visit = func(value ssa.Value) {
		if value == nil || seen[value] {
			return
		}
		seen[value] = true
		for _, r := range referrers(value) {
			switch r := r.(type) {
			case *ssa.Phi:
				visit(r)
			case *ssa.Extract:
				if isContext(r.Type()) {
					visit(r)
				}
			case *ssa.MakeInterface, *ssa.ChangeInterface:
				visit(r.(ssa.Value))
			case *ssa.Call:
				if derives(r) {
					visit(r)
				} else if outside(r) {
					list = append(list, r)
				}
			case *ssa.Store: // a variable that a closure captures
				for _, u := range referrers(r.Addr) {
					if load, ok := u.(*ssa.UnOp); ok && load.Op == token.MUL {
						visit(load)
					}
				}
			}
		}
	}
	visit(call.Value())
	return list
}

// derives reports whether a call returns a context made from its argument.
func derives(call *ssa.Call) bool {
	f := callee(&call.Call)
	return f != nil && f.Pkg() != nil && f.Pkg().Path() == "context" && strings.HasPrefix(f.Name(), "With")
}

// outside reports whether a call does work that belongs to the handler. A log line
// and the configuration of a client do not.
func outside(call *ssa.Call) bool {
	f := callee(&call.Call)
	if f == nil || f.Pkg() == nil {
		return f == nil
	}
	switch path := f.Pkg().Path(); {
	case path == "context", path == "log/slog", path == "github.com/aws/aws-sdk-go-v2/config":
		return false
	case f.Name() == "Open" || strings.HasPrefix(f.Name(), "New") && path != "net/http":
		return false
	}
	return true
}

// leaves reports whether an instruction starts a goroutine that uses the handler's
// context and that the function around it does not wait for.
func (v *vet) leaves(call ssa.CallInstruction) bool {
	started, ok := call.(*ssa.Go)
	if !ok {
		return false
	}
	uses := false
	for _, a := range started.Call.Args {
		uses = uses || isContext(a.Type())
	}
	for _, f := range v.callables(started.Call.Value) {
		if made := maker(f); made != nil {
			for _, b := range made.Bindings {
				p, pointer := b.Type().(*types.Pointer)
				uses = uses || isContext(b.Type()) || pointer && isContext(p.Elem())
			}
		}
	}
	if !uses {
		return false
	}
	for f := call.Parent(); f != nil; f = f.Parent() {
		if waits(f) {
			return false
		}
	}
	return true
}

// waits reports whether a function receives from a channel or waits for a group.
func waits(f *ssa.Function) bool {
	for _, b := range f.Blocks {
		for _, i := range b.Instrs {
			switch i := i.(type) {
			case *ssa.Select:
				return true
			case *ssa.UnOp:
				if i.Op == token.ARROW {
					return true
				}
			case ssa.CallInstruction:
				if d := callee(i.Common()); d != nil && d.Name() == "Wait" {
					return true
				}
			}
		}
	}
	return false
}
