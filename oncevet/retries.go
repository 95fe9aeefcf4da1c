// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"cmp"
	"regexp"
	"strings"

	"golang.org/x/tools/go/ssa"
)

const notExecuted = "idempotent.NotExecuted"

// notexecuted reports NotExecuted on a path on which a request was sent before, with
// nothing between them that shows whether it was.
func (v *vet) notexecuted(f *ssa.Function) {
	calls(f, func(sent ssa.CallInstruction) {
		what := v.mayHaveSent(sent)
		if what == "" {
			return
		}
		after(sent, unchecked, func(i ssa.Instruction) {
			if call, ok := i.(ssa.CallInstruction); ok && name(callee(call.Common())) == notExecuted {
				v.report("notexecuted", call.Pos(), "NotExecuted follows %s, which may have had its effect: the key runs again, and the effect can happen twice; return the error itself, or first check that nothing was sent", what)
			}
		})
	})
}

// mayHaveSent describes the effect that a call can have, or returns "".
func (v *vet) mayHaveSent(call ssa.CallInstruction) string {
	n := name(callee(call.Common()))
	if isCommit(n) || isCommitStep(n) {
		return v.describe(call)
	}
	if s := v.written(call); s != nil {
		return s.What + " (" + s.At + ")"
	}
	return ""
}

// joined reports a declaration in an error in which it does not count.
func (v *vet) joined(f *ssa.Function) {
	calls(f, func(call ssa.CallInstruction) {
		c := call.Common()
		var parts []ssa.Value
		single := false
		switch name(callee(c)) {
		case "errors.Join":
			parts, _ = variadic(c.Args[0])
		case "fmt.Errorf":
			format, _ := text(c.Args[0])
			wraps := strings.Count(format, "%w")
			if wraps == 0 {
				return
			}
			single = wraps == 1
			parts, _ = variadic(c.Args[1])
		}
		for _, p := range parts {
			switch declares := v.declaredBy(p); {
			case declares == "NotExecuted":
				v.report("joined", call.Pos(), "NotExecuted counts only as the outermost error, and is ignored here: the key does not run again; write NotExecuted around the whole error")
			case declares == "Final" && !single:
				v.report("joined", call.Pos(), "Final does not count among several errors: the outcome is not stored, and the handler can run again; return it alone, or wrap it with a single %%w")
			}
		}
	})
}

// declares returns what the error of a function can declare: "Final", "NotExecuted" or
// nothing.
func (v *vet) declares(f *ssa.Function) (what string) {
	for _, r := range returns(f) {
		if n := len(r.Results); n > 0 {
			what = cmp.Or(v.declaredBy(r.Results[n-1]), what)
		}
	}
	return what
}

func (v *vet) declaredBy(err ssa.Value) (what string) {
	origins(err, func(o ssa.Value) {
		if e, ok := o.(*ssa.Extract); ok {
			o = e.Tuple
		}
		call, ok := o.(*ssa.Call)
		if !ok {
			return
		}
		switch name(callee(&call.Call)) {
		case notExecuted:
			what = "NotExecuted"
		case "idempotent.Final":
			what = "Final"
		default:
			if f := call.Call.StaticCallee(); f != nil {
				what = cmp.Or(v.summaryOf(f).Declares, what)
			}
		}
	})
	return what
}

// mustCheck are the functions whose error decides what the handler returns.
func mustCheck(n string) bool {
	return isStep(n) || isCommit(n) || isCommitStep(n) || n == "idempotent.(Guard).Resolve"
}

// ignored reports an error that is dropped, overwritten, or only logged.
func (v *vet) ignored(f *ssa.Function) {
	calls(f, func(call ssa.CallInstruction) {
		n := name(callee(call.Common()))
		if !mustCheck(n) {
			return
		}
		const consequence = "the handler goes on as if it had succeeded, and its answer can contradict the record; return the error"
		err := errorOf(call)
		switch {
		case len(used(err)) == 0: // also of a go or defer statement
			v.report("ignored", call.Pos(), "the error of %s is ignored: %s", short(call), consequence)
		case onlyLogged(call, err):
			v.report("ignored", call.Pos(), "the error of %s is only logged or compared: %s", short(call), consequence)
		}
	})
}

// used returns the instructions that use a value, also through conversions.
func used(value ssa.Value) (list []ssa.Instruction) {
	for _, r := range referrers(value) {
		switch r := r.(type) {
		case *ssa.MakeInterface, *ssa.ChangeInterface:
			list = append(list, used(r.(ssa.Value))...)
		default:
			list = append(list, r)
		}
	}
	return list
}

// onlyLogged reports whether an error is compared, with nil or by errors.Is or As, and
// otherwise only passed to a logger, and the branch of an error that is not nil joins the
// other one.
func onlyLogged(call ssa.CallInstruction, err ssa.Value) bool {
	var fork *ssa.If
	for _, r := range used(err) {
		switch r := r.(type) {
		case *ssa.BinOp:
			for _, u := range referrers(r) {
				if i, ok := u.(*ssa.If); ok {
					fork = i
				}
			}
		default:
			if usedElsewhere(r) {
				return false
			}
		}
	}
	if fork == nil {
		return true
	}
	x, whenNil := nilCheck(fork)
	if x == nil {
		return false
	}
	failed, succeeded := fork.Block().Succs[0], fork.Block().Succs[1]
	if whenNil {
		failed, succeeded = succeeded, failed
	}
	return joins(failed, succeeded, call.Block())
}

// joins reports whether a path from one block enters the other without the third.
func joins(from, to, without *ssa.BasicBlock) bool {
	seen := map[*ssa.BasicBlock]bool{without: true}
	var walk func(b *ssa.BasicBlock) bool
	walk = func(b *ssa.BasicBlock) bool {
		if b == to {
			return true
		}
		if seen[b] {
			return false
		}
		seen[b] = true
		for _, next := range b.Succs {
			if walk(next) {
				return true
			}
		}
		return false
	}
	return walk(from)
}

// usedElsewhere reports whether an instruction that uses a value does not only pass it to
// a logger or compare it.
func usedElsewhere(i ssa.Instruction) bool {
	switch i := i.(type) {
	case ssa.CallInstruction:
		return !isLog(i)
	case *ssa.Store:
		return !isLogged(i)
	}
	return true
}

// isLogged reports whether a value is stored as an argument of a logger.
func isLogged(s *ssa.Store) bool {
	at, ok := s.Addr.(*ssa.IndexAddr)
	if !ok {
		return false
	}
	for _, r := range referrers(at.X) {
		slice, ok := r.(*ssa.Slice)
		if !ok {
			continue
		}
		for _, u := range referrers(slice) {
			if call, ok := u.(ssa.CallInstruction); ok && isLog(call) {
				return true
			}
		}
	}
	return false
}

// isLog reports whether a call only writes text for people, or compares an error.
func isLog(call ssa.CallInstruction) bool {
	n := name(callee(call.Common()))
	return logs.MatchString(n) && !ends.MatchString(n)
}

var (
	logs = regexp.MustCompile(`^(log\.|log/slog\.|fmt\.F?[Pp]rint|errors\.(Is|As)$)`)
	// ends are functions that do not return.
	ends = regexp.MustCompile(`^(os\.Exit|runtime\.Goexit|log\.(\(Logger\)\.)?(Fatal|Panic))`)
)
