// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// branch decides which successors of an If a path may take.
type branch func(*ssa.If) (yes, no bool)

// after calls visit with each instruction that can be executed after from, once. A path
// ends where visit returns false. Literals that a function defers are executed when it
// returns; other deferred calls are not visited.
func after(from ssa.Instruction, take branch, visit func(ssa.Instruction) bool) {
	if _, deferred := from.(*ssa.Defer); deferred {
		return
	}
	seen := map[*ssa.BasicBlock]bool{}
	var walk func(b *ssa.BasicBlock, start int)
	enter := func(b *ssa.BasicBlock) {
		if !seen[b] {
			seen[b] = true
			walk(b, 0)
		}
	}
	walk = func(b *ssa.BasicBlock, start int) {
		for _, i := range b.Instrs[start:] {
			switch i.(type) {
			case *ssa.Defer:
				continue
			case *ssa.RunDefers:
				for _, literal := range deferred(b) {
					enter(literal.Blocks[0])
				}
				continue
			}
			if !visit(i) {
				return
			}
			fork, ok := i.(*ssa.If)
			if !ok {
				continue
			}
			yes, no := take(fork)
			for n, taken := range []bool{yes, no} {
				if taken {
					enter(b.Succs[n])
				}
			}
			return
		}
		for _, next := range b.Succs {
			enter(next)
		}
	}
	walk(from.Block(), slices.Index(from.Block().Instrs, from)+1)
}

// deferred returns the function literals that are certainly deferred when a block returns.
func deferred(b *ssa.BasicBlock) (list []*ssa.Function) {
	calls(b.Parent(), func(call ssa.CallInstruction) {
		if d, ok := call.(*ssa.Defer); ok && d.Block().Dominates(b) {
			if f := d.Call.StaticCallee(); f != nil && f.Parent() != nil {
				list = append(list, f)
			}
		}
	})
	return list
}

// nilCheck returns the value that an If compares with nil, and whether the first
// successor is the one for nil.
func nilCheck(i *ssa.If) (x ssa.Value, whenNil, ok bool) {
	compare, ok := i.Cond.(*ssa.BinOp)
	if !ok || compare.Op != token.EQL && compare.Op != token.NEQ {
		return nil, false, false
	}
	x, y := compare.X, compare.Y
	if c, isConst := x.(*ssa.Const); isConst && c.IsNil() {
		x, y = y, x
	}
	c, isConst := y.(*ssa.Const)
	if !isConst || !c.IsNil() {
		return nil, false, false
	}
	return x, compare.Op == token.EQL, true
}

// errorOf returns the error that a call returns, or nil.
func errorOf(call ssa.CallInstruction) ssa.Value {
	v := call.Value()
	if v == nil {
		return nil
	}
	results, ok := v.Type().(*types.Tuple)
	if !ok {
		if isError(v.Type()) {
			return v
		}
		return nil
	}
	for _, r := range referrers(v) {
		if e := r.(*ssa.Extract); e.Index == results.Len()-1 && isError(e.Type()) {
			return e
		}
	}
	return nil
}

// copyOf reports whether v is a copy of of, possibly among others.
func copyOf(v, of ssa.Value) bool {
	found := false
	origins(v, func(o ssa.Value) { found = found || o == of })
	return found || v == of
}

// onSuccess follows the branches that a path takes if err is nil. A condition that a
// function computes from err, such as errors.Is, is false then.
func onSuccess(err ssa.Value) branch {
	return func(i *ssa.If) (yes, no bool) {
		if err == nil {
			return true, true
		}
		if x, whenNil, ok := nilCheck(i); ok && copyOf(x, err) {
			return whenNil, !whenNil
		}
		cond := i.Cond
		if e, ok := cond.(*ssa.Extract); ok {
			cond = e.Tuple
		}
		switch c := cond.(type) {
		case *ssa.Call:
			for _, a := range c.Call.Args {
				if copyOf(a, err) {
					return false, true
				}
			}
		case *ssa.TypeAssert:
			if copyOf(c.X, err) {
				return false, true
			}
		}
		return true, true
	}
}

// unchecked follows a path as long as it only compares errors with nil, so that
// nothing on it shows what happened.
func unchecked(i *ssa.If) (yes, no bool) {
	x, _, ok := nilCheck(i)
	ok = ok && isError(x.Type())
	return ok, ok
}

// calls yields the calls of a function in the order of its source.
func calls(f *ssa.Function, yield func(ssa.CallInstruction)) {
	for _, b := range f.Blocks {
		for _, i := range b.Instrs {
			if c, ok := i.(ssa.CallInstruction); ok {
				yield(c)
			}
		}
	}
}
