package lambdahttp

import (
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/internal/sfv"
)

// Profile is a dialect of the Idempotency-Key header, as plain data: [IETF],
// [Stripe], [UUID] or a custom one. A zero field has the value of [IETF], so a
// custom profile sets only the differences:
//
//	o.Profile.MinKeyLength = 24
//	o.Profile.Answers[lambdahttp.KeyReused].Status = 409
type Profile struct {
	// Header is the name of the request header that carries the key.
	Header string
	// Syntax defines how a key is written.
	Syntax KeySyntax
	// MinKeyLength and MaxKeyLength bound the key itself, without quotes and
	// escapes, in bytes.
	MinKeyLength, MaxKeyLength int
	// HeaderOnly forbids other sources of the key: with [Options.KeyFrom]
	// construction fails.
	HeaderOnly bool

	// Methods are the request methods that are guarded; requests of all others
	// reach the handler unguarded. Methods are case-sensitive (RFC 9110,
	// section 9.1).
	Methods []string
	// ForbiddenMethods are methods whose requests must not have a key: such a
	// request is refused with 400. A method must not be in both lists.
	ForbiddenMethods []string

	// Operation is one operation name for all endpoints, see
	// [Options.Operation]. A key then belongs to one request of the whole API,
	// and using it at another endpoint is [KeyReused]. Empty: each method and
	// route has its own keys.
	Operation string
	// ServerErrors is the default of [Options.ServerErrors].
	ServerErrors ServerErrors
	// MinRetention is the shortest allowed [idempotent.Options.Retention]. It
	// must be at least an hour.
	MinRetention time.Duration
	// StatusHeader sends Idempotency-Status with every response to a request
	// that has a key.
	StatusHeader bool

	// Answers are the statuses and texts of the responses that replace the
	// handler's.
	Answers Answers
	// Render renders such a response.
	Render func(Problem) Response
}

// leastRetention is the lower limit of MinRetention: clients may retry for at
// least that long with every profile.
const leastRetention = time.Hour

// withDefaults replaces the zero fields of p by those of IETF.
func (p Profile) withDefaults() Profile {
	if p.Header == "" {
		p.Header = IETF.Header
	}
	if p.Syntax.Parse == nil {
		p.Syntax = IETF.Syntax
	}
	if p.MinKeyLength == 0 {
		p.MinKeyLength = IETF.MinKeyLength
	}
	if p.MaxKeyLength == 0 {
		p.MaxKeyLength = IETF.MaxKeyLength
	}
	if p.Methods == nil {
		p.Methods = IETF.Methods
	}
	if p.ServerErrors == ServerErrorsByProfile {
		p.ServerErrors = IETF.ServerErrors
	}
	if p.MinRetention == 0 {
		p.MinRetention = IETF.MinRetention
	}
	if p.Render == nil {
		p.Render = IETF.Render
	}
	for s, standard := range IETF.Answers {
		a := &p.Answers[s]
		if a.Status == 0 {
			a.Status = standard.Status
		}
		if a.Title == "" {
			a.Title = standard.Title
		}
		if a.Detail == "" {
			a.Detail = standard.Detail
		}
	}
	return p
}

func (p *Profile) validate() error {
	if !sfv.IsHTTPToken(p.Header) {
		return fmt.Errorf("lambdahttp: Profile.Header %q is not a valid header name", p.Header)
	}
	if p.MinKeyLength < 1 || p.MaxKeyLength < p.MinKeyLength {
		return fmt.Errorf("lambdahttp: Profile.MinKeyLength (%d) must be at least 1 and at most Profile.MaxKeyLength (%d)", p.MinKeyLength, p.MaxKeyLength)
	}
	if p.ServerErrors > ReleaseServerErrors {
		return fmt.Errorf("lambdahttp: Profile.ServerErrors is %d; use FollowRecovery, StoreServerErrors, UnknownServerErrors or ReleaseServerErrors", p.ServerErrors)
	}
	if p.MinRetention < leastRetention {
		return fmt.Errorf("lambdahttp: Profile.MinRetention is %s; it must be at least an hour, because clients may retry for that long", p.MinRetention)
	}
	if err := p.validateMethods(); err != nil {
		return err
	}
	for s, a := range p.Answers {
		least, most := 400, 599
		if Situation(s) == Accepted {
			least, most = 200, 299
		}
		if a.Status < least || a.Status > most {
			return fmt.Errorf("lambdahttp: Profile.Answers[%s].Status is %d; it must be %d to %d", Situation(s), a.Status, least, most)
		}
		for name := range a.Header {
			if !sfv.IsHTTPToken(name) {
				return fmt.Errorf("lambdahttp: Profile.Answers[%s].Header: %q is not a valid header name", Situation(s), name)
			}
		}
	}
	return nil
}

func (p *Profile) validateMethods() error {
	if len(p.Methods) == 0 {
		return errors.New("lambdahttp: Profile.Methods is empty, so nothing would be guarded; leave it nil for POST and PATCH")
	}
	guarded := map[string]bool{}
	for _, m := range p.Methods {
		if !sfv.IsHTTPToken(m) {
			return fmt.Errorf("lambdahttp: Profile.Methods: %q is not a valid method", m)
		}
		guarded[m] = true
	}
	for _, m := range p.ForbiddenMethods {
		if !sfv.IsHTTPToken(m) {
			return fmt.Errorf("lambdahttp: Profile.ForbiddenMethods: %q is not a valid method", m)
		}
		if guarded[m] {
			return fmt.Errorf("lambdahttp: Profile.ForbiddenMethods contains %s, which is also in Profile.Methods", m)
		}
	}
	return nil
}
