// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// once is the path of the toolkit. It is matched by name and not imported, so that
// the tool works with every version of the toolkit and has few dependencies.
const once = "github.com/once-lambda/once/"

// name returns the name of a function as "idempotent.Step" or
// "idempotent.(Guard).Resolve" if it belongs to the toolkit, and otherwise with the
// path of its package: "net/http.(Client).Do".
func name(f *types.Func) string {
	if f == nil || f.Pkg() == nil {
		return ""
	}
	path := strings.TrimPrefix(f.Pkg().Path(), once)
	if recv := f.Signature().Recv(); recv != nil {
		return path + ".(" + typeName(recv.Type()) + ")." + f.Name()
	}
	return path + "." + f.Name()
}

// typeName returns the name of a defined type, or of what a pointer points to,
// without its package.
func typeName(t types.Type) string {
	if n := named(t); n != nil {
		return n.Obj().Name()
	}
	return ""
}

// named returns the defined type that t is or points to, or nil.
func named(t types.Type) *types.Named {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, _ := types.Unalias(t).(*types.Named)
	return n
}

// isType reports whether t is, or points to, the defined type of that name, for
// example "idempotent.Operation" or "net/http.Request".
func isType(t types.Type, want string) bool {
	n := named(t)
	if n == nil || n.Obj().Pkg() == nil {
		return false
	}
	return strings.TrimPrefix(n.Obj().Pkg().Path(), once)+"."+n.Obj().Name() == want
}

func isContext(t types.Type) bool { return isType(t, "context.Context") }

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// callee returns the function or method that a call names, or nil if the call is of
// a function value.
func callee(c *ssa.CallCommon) *types.Func {
	if c.IsInvoke() {
		return c.Method
	}
	return declared(c.StaticCallee())
}

// arguments returns the arguments of a call. That of a method, also as a value, begins with
// the receiver, unless the call is through an interface.
func arguments(c *ssa.CallCommon) []ssa.Value {
	if m, ok := c.Value.(*ssa.MakeClosure); ok && m.Fn.(*ssa.Function).Synthetic != "" {
		return append([]ssa.Value{m.Bindings[0]}, c.Args...)
	}
	return c.Args
}

// declared returns the declaration of f, which can be an instance or a wrapper, or
// nil for a function literal.
func declared(f *ssa.Function) *types.Func {
	if f == nil {
		return nil
	}
	if object, ok := f.Object().(*types.Func); ok {
		return object.Origin()
	}
	return nil
}

// guards are the functions that guard a handler, with the positions of their
// arguments. In a method of lambdahttp.JSON, argument 0 is the receiver.
var guards = map[string]struct{ handler, key, options int }{
	"idempotent.Wrap":                {2, 1, 3},
	"idempotent.Do":                  {3, -1, 4},
	"idempotent.DoOutcome":           {3, -1, 4},
	"lambdahttp.APIGatewayV1":        {1, -1, 2},
	"lambdahttp.APIGatewayV2":        {1, -1, 2},
	"lambdahttp.ALB":                 {1, -1, 2},
	"lambdahttp.FunctionURL":         {1, -1, 2},
	"lambdahttp.(JSON).APIGatewayV1": {0, -1, 2},
	"lambdahttp.(JSON).APIGatewayV2": {0, -1, 2},
	"lambdahttp.(JSON).ALB":          {0, -1, 2},
	"lambdahttp.(JSON).FunctionURL":  {0, -1, 2},
	"lambdahttp.(JSON).Handler":      {0, -1, 2},
	"lambdabatch.SQS":                {1, -1, 2},
	"lambdabatch.SQSFIFO":            {1, -1, 2},
	"lambdabatch.Kinesis":            {1, -1, 2},
	"lambdabatch.DynamoDB":           {1, -1, 2},
	"lambdabatch.Kafka":              {1, -1, 2},
}

func isStep(name string) bool { return name == "idempotent.Step" }
func isCommitStep(name string) bool {
	return name == "idempotent.CommitStep" || name == "dynamostore.CommitStep"
}
func isCommit(name string) bool {
	return name == "idempotent.(Execution).Commit" || name == "dynamostore.Commit"
}
