// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// repeats reports whether a request with a key is sent again after that answer.
func repeats(resp *http.Response, p *Problem) bool {
	switch resp.Header.Get("Stripe-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	return p.repeatable()
}

// permanent reports whether a request without an answer would fail again.
func permanent(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}

// unsent reports whether an error proves that its connection was not established.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || permanent(err)
}

// becomesGet reports whether http.Client follows that answer with a GET that is not
// the request.
func becomesGet(resp *http.Response) bool {
	return resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusFound
}

// delay returns the wait after an attempt, the first of which is 1. asked is the
// Retry-After of its answer, or 0.
func (o *Options) delay(attempt int, asked time.Duration) time.Duration {
	wait := min(o.MinDelay, o.MaxDelay)
	for range attempt - 1 {
		wait = min(2*wait, o.MaxDelay)
	}
	random := time.Duration(rand.Float64() * o.Jitter * float64(wait))
	if asked > 0 {
		return max(asked, asked+random) // never earlier, also if the sum overflows
	}
	return wait - random
}
