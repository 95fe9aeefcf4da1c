package lambdahttp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// F63: BeforeReplay gets the retry and the stored response, once for each
// replay of a response and at no other time.
func TestBeforeReplay(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		asked := 0
		var refusal error
		w := newWorld(t, on, func(o *lambdahttp.Options) {
			o.BeforeReplay = func(ctx context.Context, r *lambdahttp.Request, stored lambdahttp.Response) error {
				asked++
				if r.Path != "/charges" || stored.Status != 201 || string(stored.Body) != `{"id":"ch_1"}` || stored.Header.Get("Location") != "/charges/ch_1" || stored.Header.Get("Date") != "" || ctx.Err() != nil {
					t.Errorf("BeforeReplay was called with %+v for %+v", stored, r)
				}
				return refusal
			}
		})
		w.post(charge())
		w.post(charge(withBody("{}")))
		w.post(charge(withMethod("GET")))
		if asked != 0 {
			t.Errorf("BeforeReplay was called %d times without a replay", asked)
		}
		if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" || asked != 1 {
			t.Errorf("allowed: got %d %v after %d calls of BeforeReplay", a.status, a.header, asked)
		}
		refusal = lambdahttp.RefuseReplay("The charge was deleted")
		if a := w.post(charge()); a.status != 409 || a.header["Idempotent-Replayed"] != "" || a.header["Location"] != "" || !strings.Contains(a.body, `"detail":"The charge was deleted"`) {
			t.Errorf("refused: got %d %v %s", a.status, a.header, a.body)
		}
		refusal = errors.Join(errDown)
		if _, err := w.send(t.Context(), charge()); err != refusal {
			t.Errorf("failed: got %v, want the unchanged error", err)
		}
		refusal = nil
		if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("allowed again: got %d after %d runs", a.status, w.runs)
		}
	})
}

func TestBeforeReplayIsNotAskedAboutFinal(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, refusing(errDown))
		w.becomes(answers(0, idempotent.Final("closed", "The account is closed.")))
		w.post(charge())
		if a := w.post(charge()); a.status != 422 || a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("got %d %v %s", a.status, a.header, a.body)
		}
	})
	if got := lambdahttp.RefuseReplay("gone").Error(); !strings.Contains(got, "gone") {
		t.Errorf("got the error %q, want the detail in it", got)
	}
}
