package lambdahttp_test

import (
	"context"
	"net/http"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// The options and request sequences that several rows share.

func bodyKey(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("idempotency_key") }

func withBodyKey(member string) func(*request) {
	return withBody(`{"amount":1250,"idempotency_key":` + member + `}`)
}

func at(path string) func(*request) {
	return func(r *request) { r.path, r.route = path, path }
}

// vanished sends a request whose process ends before it reports its outcome,
// and the same request again after the lease.
func vanished(w *world) reply {
	w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
	w.post(charge())
	w.store.set(func(s *faultyStore) { s.replaceErr = nil })
	w.clock.Advance(16 * time.Minute)
	return w.post(charge())
}

// resumed sends a request that charges in a step and whose process ends after
// the step. It sends the same request again after the lease, which must not
// charge again.
func resumed(w *world) reply {
	charges := 0
	w.becomes(func(ctx context.Context, r request) (reply, error) {
		if _, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
			charges++
			return "ch_1", nil
		}); err != nil {
			return reply{}, err
		}
		if w.runs == 1 {
			w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		}
		return created(ctx, r)
	})
	w.post(charge())
	w.store.set(func(s *faultyStore) { s.replaceErr = nil })
	w.clock.Advance(16 * time.Minute)
	a := w.post(charge())
	if charges != 1 {
		w.t.Errorf("charged %d times, want once", charges)
	}
	return a
}

// unheard sends a request whose handler returns an unknown outcome, and the
// same request again 20 s later.
func unheard(w *world) reply {
	w.becomes(answers(0, idempotent.Unknown(errDown)))
	if _, err := w.send(w.t.Context(), charge()); err == nil {
		w.t.Error("the handler's error did not reach Lambda")
	}
	w.clock.Advance(20 * time.Second)
	return w.post(charge())
}

// secret is a handler whose response must not be stored.
func secret(hint string) handler {
	return func(ctx context.Context, r request) (reply, error) {
		lambdahttp.NoStore(ctx, hint)
		return created(ctx, r)
	}
}

// refusal is a handler that does nothing and declares NotExecuted.
func refusal(status int) handler {
	return func(ctx context.Context, r request) (reply, error) {
		lambdahttp.NotExecuted(ctx)
		return answers(status, nil)(ctx, r)
	}
}

func refusing(err error) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		o.BeforeReplay = func(context.Context, *lambdahttp.Request, lambdahttp.Response) error { return err }
	}
}

// inFront sends a request that a layer in front of the guarded handler refuses,
// and the same request again without that layer.
func inFront(status int) func(*world) reply {
	return func(w *world) reply {
		open := false
		front := func(r request) reply {
			if !open {
				return reply{status: status}
			}
			return w.post(r)
		}
		if a := front(charge()); a.status != status || w.runs != 0 || w.store.calls != 0 {
			w.t.Errorf("status %d after %d runs and %d calls of the store", a.status, w.runs, w.store.calls)
		}
		open = true
		return front(charge())
	}
}

func waitFor(d time.Duration) func(*lambdahttp.Options) {
	return guard(func(o *idempotent.Options) { o.WaitFor = d })
}

// waiting sends a request that takes some time, and a second one at the same
// time that must get its response after least to most.
func waiting(takes, least, most time.Duration) func(*world) reply {
	return func(w *world) reply { return w.waits(takes, 0, least, most) }
}

// waits is waiting with a second request that has a deadline, unless it is 0.
func (w *world) waits(takes, deadline, least, most time.Duration) (second reply) {
	ctx := w.t.Context()
	if deadline != 0 {
		ctx = w.clock.Invocation(ctx, deadline)
	}
	done := make(chan struct{})
	w.becomes(duringRun(func() {
		w.becomes(created)
		go func() {
			defer close(done)
			begun := w.clock.Now()
			var err error
			if second, err = w.send(ctx, charge()); err != nil {
				w.t.Error(err)
			}
			if waited := w.clock.Now().Sub(begun); waited < least || waited > most {
				w.t.Errorf("the response took %s, want %s to %s", waited, least, most)
			}
		}()
		<-time.After(takes)
	}))
	w.post(charge())
	<-done
	return second
}

func accepting(o *lambdahttp.Options) {
	o.Accepted = func(r *lambdahttp.Request, _ idempotent.RecordID) string { return "/work" + r.Path }
}

func telling(o *lambdahttp.Options)  { o.Profile.StatusHeader = true }
func expiring(o *lambdahttp.Options) { o.ExpiresHeader = true }
func exposing(o *lambdahttp.Options) { o.ExposeHeaders = true }

func documented(o *lambdahttp.Options) { o.DocsURL = "https://api.example.com/docs/keys" }

var docsLink = map[string]string{"Link": `<https://api.example.com/docs/keys>; rel="describedby"; type="text/html"`}

// expiresIn sends a request and checks that its outcome expires after d, within
// the second that an HTTP date rounds off.
func expiresIn(d time.Duration) func(*world) reply {
	return func(w *world) reply {
		a := w.post(charge())
		at, err := http.ParseTime(a.header["Idempotency-Expires"])
		if left := at.Sub(w.clock.Now()); err != nil || left > d || left < d-10*time.Second {
			w.t.Errorf("Idempotency-Expires %q is in %s (%v), want %s", a.header["Idempotency-Expires"], left, err, d)
		}
		return a
	}
}
