// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Of returns a record in the form of the model. It leaves out what the model
// names in its own way: version, fingerprint, owner and outcome. The name of the
// step is step, and its value is the stored bytes.
func Of(r *driver.Record, step string) Key {
	if r == nil {
		return Key{}
	}
	k := Key{
		State:     State(r.State.Code()[0]),
		Recovery:  Recovery(r.Recovery),
		Retention: cmp.Or(r.Retention, 24*time.Hour).Milliseconds(),
		Attempt:   r.Attempt,
		LeaseEnd:  Millis(r.LeaseEnd),
		Expires:   Millis(r.Expires),
		Due:       Millis(r.Due),
		OpenSince: Millis(r.OpenSince),
		Announced: r.Announced,
	}
	if s, begun := r.Step(step); begun {
		k.Step = Step{Begun: true, Once: s.Mode == driver.AtMostOnce, Finished: s.Finished, Value: string(s.Result)}
	}
	return k
}

// Nameless returns k without what Of leaves out.
func (k Key) Nameless() Key {
	k.Version, k.Fingerprint, k.Owner, k.Outcome = 0, 0, 0, Outcome{}
	return k
}

// Millis returns t in the time of the model; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
