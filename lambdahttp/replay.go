package lambdahttp

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
)

// RefuseReplay returns the error with which [Options.BeforeReplay] refuses to
// replay a stored response. The detail is shown to the client and should say
// what has changed: "The charge was deleted." An empty detail leaves the
// standard text.
func RefuseReplay(detail string) error { return &ReplayRefusedError{Detail: detail} }

// ReplayRefusedError is the error of [RefuseReplay].
type ReplayRefusedError struct{ Detail string }

func (e *ReplayRefusedError) Error() string { return "lambdahttp: replay refused: " + e.Detail }

// replay returns the response for a stored outcome: a response, or the
// FinalError err. It filters the headers again, because the record may be older
// than the current list.
func (e *engine) replay(ctx context.Context, r *Request, out idempotent.Outcome[stored], err error) (answer, error) {
	var final *idempotent.FinalError
	if errors.As(err, &final) {
		return e.replayed(e.final(final), out), nil
	}
	if out.Value.withheld {
		return e.unavailable(out.Ref, out.Value.hint), nil
	}
	response := out.Value.Response
	response.Header = only(response.Header, e.replayHeaders)
	if e.opts.BeforeReplay != nil {
		err := e.opts.BeforeReplay(ctx, r, response)
		var refused *ReplayRefusedError
		switch {
		case errors.As(err, &refused):
			return e.unavailable(out.Ref, refused.Detail), nil
		case err != nil:
			return answer{}, err
		}
	}
	return e.replayed(answer{response: &response}, out), nil
}

func (e *engine) replayed(a answer, out idempotent.Outcome[stored]) answer {
	a = e.status(a.mark(headerReplayed, "true"), statusReplayed)
	return e.expires(a, out.Expires)
}

// unavailable returns the response for a stored outcome that cannot be
// replayed.
func (e *engine) unavailable(resource, detail string) answer {
	p := e.problem(ReplayUnavailable)
	p.Resource = resource
	if detail != "" {
		p.Detail = detail
	}
	return e.render(p)
}
