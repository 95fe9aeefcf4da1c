// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/token"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// lostcontext and afterexit report what a handler runs outside its own context, in
// the functions that handlers and steps reach. Those that only deferred calls reach may
// use a new context.
func (v *vet) contexts(handlers []*ssa.Function) {
	const lost = "gets a context without the handler's deadline and key: it can run after Lambda has killed the handler's lease, and DownstreamKey is random in it; pass the handler's context"
	const leaves = "goroutine continues after the handler has returned: Lambda freezes it, and its steps and commits are refused; wait for it before the handler returns"
	undeferred := v.reach(handlers, false)
	for f := range v.reach(handlers, true) {
		calls(f, func(call ssa.CallInstruction) {
			_, deferred := call.(*ssa.Defer)
			deferred = deferred || !undeferred[f]
			if v.lost(call) && !deferred {
				v.report("lostcontext", call.Pos(), "%s %s", short(call), lost)
			}
			if v.leaves(call) {
				v.report("afterexit", call.Pos(), "the %s", leaves)
			}
			for _, inner := range v.runs(call) {
				if len(inner.Blocks) > 0 {
					continue // reported there
				}
				sum := v.summaryOf(inner)
				if len(sum.Lost) > 0 && !deferred {
					v.report("lostcontext", call.Pos(), "%s calls %s, which %s", short(call), sum.Lost[0], lost)
				}
				if len(sum.Leaves) > 0 {
					v.report("afterexit", call.Pos(), "%s starts a goroutine (%s): the %s", short(call), sum.Leaves[0], leaves)
				}
			}
		})
	}
}

// lost reports whether a call does work of the handler with a new context.
func (v *vet) lost(call ssa.CallInstruction) bool {
	c, ok := call.(*ssa.Call)
	return ok && outside(c) && slices.ContainsFunc(c.Call.Args, func(a ssa.Value) bool {
		return isContext(a.Type()) && (v.isNew(a) || v.isKept(a))
	})
}

// isKept reports whether a value is a context from a field or a variable of the package,
// in which the package stores only new contexts.
func (v *vet) isKept(value ssa.Value) bool {
	kept := false
	origins(value, func(o ssa.Value) {
		if load, ok := o.(*ssa.UnOp); ok {
			o = load.X
		}
		kept = kept || v.keeps[placeOf(o)]
	})
	return kept
}

// findKept notes the places of values: true if all stores put new contexts there.
func (v *vet) findKept() {
	v.keeps = map[place]bool{}
	for _, f := range v.funcs {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				store, ok := i.(*ssa.Store)
				if !ok {
					continue
				}
				at := placeOf(store.Addr)
				before, known := v.keeps[at]
				v.keeps[at] = at != place{} && v.isNew(store.Val) && (before || !known)
			}
		}
	}
}

// place is a field of a struct type, or a variable of the package.
type place struct{ of, field string }

// placeOf returns the place of an address, or of the value of a field.
func placeOf(value ssa.Value) place {
	switch a := value.(type) {
	case *ssa.Global:
		return place{a.String(), ""}
	case *ssa.FieldAddr:
		return place{strings.TrimPrefix(a.X.Type().String(), "*"), structOf(a.X.Type()).Field(a.Field).Name()}
	case *ssa.Field:
		return place{a.X.Type().String(), structOf(a.X.Type()).Field(a.Field).Name()}
	}
	return place{}
}

// isNew reports whether a context is a new one, or made of one.
func (v *vet) isNew(value ssa.Value) bool {
	found := false
	origins(value, func(o ssa.Value) {
		if e, ok := o.(*ssa.Extract); ok {
			o = e.Tuple
		}
		call, ok := o.(*ssa.Call)
		if !ok {
			return
		}
		v.resolve(call, func() {
			n := name(callee(&call.Call))
			found = found || n == "context.Background" || n == "context.TODO" || strings.HasPrefix(n, "context.With") && v.isNew(call.Call.Args[0])
		})
	})
	return found
}

// outside reports whether a call with a context does work that belongs to the handler. A
// log line and the configuration of a client do not.
func outside(call *ssa.Call) bool {
	n := name(callee(&call.Call))
	return strings.HasPrefix(n, "net/http.New") || !idle.MatchString(n)
}

var idle = regexp.MustCompile(`^(context|log/slog|github\.com/aws/aws-sdk-go-v2/config)\.|\.(Open$|New[^.]*$)`)

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
		for _, free := range f.FreeVars {
			uses = uses || worksWith(free)
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

// worksWith reports whether a function uses the variable of a context that it captured for
// more than to learn that the context has ended.
func worksWith(captured *ssa.FreeVar) bool {
	return isContext(captured.Type()) && slices.ContainsFunc(referrers(captured), func(i ssa.Instruction) bool {
		load, ok := i.(*ssa.UnOp)
		return !ok || slices.ContainsFunc(used(load), func(i ssa.Instruction) bool {
			call, ok := i.(ssa.CallInstruction)
			return !ok || !slices.Contains([]string{"context.(Context).Done", "context.(Context).Err", "context.Cause"}, name(callee(call.Common())))
		})
	})
}

// waits reports whether a function, or a literal that it defers, receives from a channel
// or waits for a group.
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
				if _, is := i.(*ssa.Defer); !is {
					continue
				}
				if d := i.Common().StaticCallee(); d != nil && d.Parent() == f && waits(d) {
					return true
				}
			}
		}
	}
	return false
}
