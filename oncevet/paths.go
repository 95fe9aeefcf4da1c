// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/token"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// branch decides which successors of an If a path may take.
type branch func(*ssa.If) (yes, no bool)

// after calls visit with each instruction that can be executed after from. Literals that
// a function defers are executed when it returns; other deferred calls are not visited.
func after(from ssa.Instruction, take branch, visit func(ssa.Instruction)) {
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
			}
			visit(i)
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
// successor is the one for nil. For another If, x is nil.
func nilCheck(i *ssa.If) (x ssa.Value, whenNil bool) {
	compare, ok := i.Cond.(*ssa.BinOp)
	if !ok {
		return nil, false
	}
	x, y := compare.X, compare.Y
	if _, isConst := x.(*ssa.Const); isConst {
		x, y = y, x
	}
	if c, isConst := y.(*ssa.Const); !isConst || !c.IsNil() {
		return nil, false
	}
	return x, compare.Op == token.EQL
}

// errorOf returns the error that a call returns, or nil.
func errorOf(call ssa.CallInstruction) ssa.Value {
	v := call.Value()
	if v == nil {
		return nil
	}
	if isError(v.Type()) {
		return v
	}
	last := v.Call.Signature().Results().Len() - 1
	for _, r := range referrers(v) {
		if e, ok := r.(*ssa.Extract); ok && e.Index == last && isError(e.Type()) {
			return e
		}
	}
	return nil
}

// copyOf reports whether v is a copy of of, possibly among others.
func copyOf(v, of ssa.Value) bool {
	found := false
	origins(v, func(o ssa.Value) { found = found || o == of })
	return found
}

// onSuccess follows the branches that a path takes if err is nil. A condition that a
// function computes from err, such as errors.Is, is false then.
func onSuccess(err ssa.Value) branch {
	return func(i *ssa.If) (yes, no bool) {
		if x, whenNil := nilCheck(i); copyOf(x, err) {
			return whenNil, !whenNil
		}
		cond := i.Cond
		if e, ok := cond.(*ssa.Extract); ok {
			cond = e.Tuple
		}
		var from []ssa.Value
		switch c := cond.(type) {
		case *ssa.Call:
			from = c.Call.Args
		case *ssa.TypeAssert:
			from = []ssa.Value{c.X}
		}
		return !slices.ContainsFunc(from, func(v ssa.Value) bool { return copyOf(v, err) }), true
	}
}

// unchecked follows a path as long as it only compares errors with nil, so that
// nothing on it shows what happened.
func unchecked(i *ssa.If) (yes, no bool) {
	x, _ := nilCheck(i)
	follows := x != nil && isError(x.Type())
	return follows, follows
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
