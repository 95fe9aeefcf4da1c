// SPDX-License-Identifier: Apache-2.0

package dynamotest_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
)

// Every method passes its call on, by Do, to the same method of the client, and
// returns what the function leaves as the reply.
func TestIntercept(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for method := range reflect.TypeFor[dynamostore.Client]().Methods() {
		in, out := reflect.New(method.Type.In(1).Elem()), reflect.New(method.Type.Out(0).Elem()).Interface()
		for name, row := range map[string]struct {
			out  any
			err  error
			f    func(context.Context, *dynamotest.Call)
			fail string
		}{
			"passed on":          {out, nil, func(ctx context.Context, c *dynamotest.Call) { c.Do(ctx) }, ""},
			"refused":            {nil, down, func(ctx context.Context, c *dynamotest.Call) { c.Do(ctx) }, "down"},
			"reply lost":         {out, nil, func(ctx context.Context, c *dynamotest.Call) { c.Do(ctx); c.Err = down }, "down"},
			"second try":         {out, nil, func(ctx context.Context, c *dynamotest.Call) { c.Err = down; c.Do(ctx) }, ""},
			"answered":           {nil, down, func(_ context.Context, c *dynamotest.Call) { c.Out = out }, ""},
			"left without reply": {out, nil, func(context.Context, *dynamotest.Call) {}, "dynamotest: " + method.Name + " was intercepted, and its output is a <nil>: call Do, or set Out or Err"},
		} {
			made := ""
			inner := dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) { made, c.Out, c.Err = c.Op, row.out, row.err })
			client := dynamotest.Intercept(inner, func(ctx context.Context, c *dynamotest.Call) {
				if c.Op != method.Name || c.In != in.Interface() {
					t.Errorf("%s, %s: intercepted as %s with %v", method.Name, name, c.Op, c.In)
				}
				row.f(ctx, c)
				if made != "" && made != c.Op {
					t.Errorf("%s, %s: made as %s", method.Name, name, made)
				}
			})
			reply := reflect.ValueOf(client).MethodByName(method.Name).Call([]reflect.Value{reflect.ValueOf(t.Context()), in})
			err, _ := reply[1].Interface().(error)
			good := err == nil && reply[0].Interface() == out
			if row.fail != "" {
				good = err != nil && err.Error() == row.fail && reply[0].IsNil()
			}
			if !good {
				t.Errorf("%s, %s: got %v, %v", method.Name, name, reply[0], err)
			}
		}
	}
}
