package lambdahttp

import (
	"context"
	"maps"
	"net/http"

	"github.com/once-lambda/once/idempotent"
)

// translation holds the differences between two event types: how to convert an
// event of type Ev to a Request, and a response of type Ans to and from a
// Response.
type translation[Ev, Ans any] struct {
	name     string // of the constructor
	request  func(*Ev) Request
	status   func(*Ans) int
	response func(*Ans) (Response, error)
	answer   func(*Ev, Response) Ans
	// set sets a header of the handler's own response. It copies the map, because
	// the handler may use one map for every response.
	set func(ev *Ev, a *Ans, name, value string)
}

// read returns the response that v is or points to, if that is of type Ans.
func (t *translation[Ev, Ans]) read(v any) (r Response, ok bool, err error) {
	if p, isPointer := v.(*Ans); isPointer && p != nil {
		v = *p
	}
	a, ok := v.(Ans)
	if ok {
		r, err = t.response(&a)
	}
	return r, ok, err
}

// exchange is one event and the response to it.
type exchange[Ev, Ans any] struct {
	t       *translation[Ev, Ans]
	handler func(context.Context, Ev) (Ans, error)
	event   Ev
	ans     Ans
}

// adapt returns h guarded by an engine.
func adapt[Ev, Ans any](t translation[Ev, Ans], g *idempotent.Guard, h func(context.Context, Ev) (Ans, error), optFns []func(*Options)) func(context.Context, Ev) (Ans, error) {
	if g == nil || h == nil {
		panic("lambdahttp: " + t.name + ": the guard or the handler is nil")
	}
	e, err := newEngine(g, optFns)
	if err != nil {
		panic(err)
	}
	e.translate = t.read
	return func(ctx context.Context, event Ev) (Ans, error) {
		x := &exchange[Ev, Ans]{t: &t, handler: h, event: event}
		r := t.request(&x.event)
		a, err := e.serve(ctx, &r, x)
		if a.response != nil {
			x.ans = t.answer(&x.event, *a.response)
		}
		for _, m := range a.marks {
			t.set(&x.event, &x.ans, m.name, m.value)
		}
		return x.ans, err
	}
}

func (x *exchange[Ev, Ans]) enter(ctx context.Context) (err error) {
	x.ans, err = x.handler(ctx, x.event)
	return err
}

func (x *exchange[Ev, Ans]) status() int                 { return x.t.status(&x.ans) }
func (x *exchange[Ev, Ans]) response() (Response, error) { return x.t.response(&x.ans) }

// setHeader returns a copy of h with the header set, and without other
// spellings of its name.
func setHeader[V any](h map[string]V, name string, value V) map[string]V {
	h = maps.Clone(h)
	if h == nil {
		h = map[string]V{}
	}
	for k := range h {
		if http.CanonicalHeaderKey(k) == name {
			delete(h, k)
		}
	}
	h[name] = value
	return h
}
