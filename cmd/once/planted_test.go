// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/pathkey"
)

// planted is a record in a script, as a line of JSON. Times are durations before the
// script's clock; those after it are negative.
type planted struct {
	Key   [3]string // operation, scope ("" is [idempotent.Global]) and the client's key
	Path  string    // of the HTTP request that the key belongs to
	As    string    // the operation of another record with the same hash
	Gone  bool      // removes the record again, which has to be completed or retryable
	Times int       // plants so many records, whose keys end in .0, .1 and so on; 0: one

	State, Reason     string // default: the reason of a result
	Age, Since        ago    // since it was created, and is in its state: default the age
	Lease, Due        *ago   // default: 12 s after it was created; after that or a minute after Since
	Expires, Open     *ago   // default: 24 h after Since, if it is settled
	Attempt           int    // default: 1
	Token             string // default: from the id
	Recovery          string // default: reconcile
	Codec             string // default: that of the operation
	Retention         ago
	Unresolved        ago
	ResultVersion     string   `json:"result_version"`
	DeclaredSteps     []string `json:"declared_steps"`
	Encoding, Result  string
	Base64            []byte // the result, if it is not text
	Ref               string
	RequestID         string `json:"request_id"`
	Trace             string
	Announced         bool
	Answered          bool // by the predecessor
	ReconcileAttempts int  `json:"reconcile_attempts"`
	Exhausted         bool
	Steps             []struct {
		Name             string
		Once             bool // AtMostOnce
		By               driver.StepSource
		Attempt          int
		Age              ago
		Encoding, Result string
	}
}

// ago is a duration before the script's clock.
type ago time.Duration

// never is a time that is not set.
const never = ago(math.MinInt64)

// UnmarshalText parses a duration, or never.
func (a *ago) UnmarshalText(text []byte) error {
	if *a = never; string(text) == "never" {
		return nil
	}
	d, err := time.ParseDuration(string(text))
	*a = ago(d)
	return err
}

// plantedRecord is a record, or one that is gone.
type plantedRecord struct {
	driver.Record
	gone bool
}

// parsePlanted returns the records of a file.
func parsePlanted(text string, now time.Time) (list []plantedRecord, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	for d.More() {
		var p planted
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		key := p.Key
		for i := range max(p.Times, 1) {
			if p.Times > 0 {
				p.Key[2] = fmt.Sprintf("%s.%d", key[2], i)
			}
			r, err := p.record(now)
			if err != nil {
				return nil, err
			}
			list = append(list, plantedRecord{r, p.Gone})
		}
	}
	return list, nil
}

func (p *planted) record(now time.Time) (r driver.Record, err error) {
	at := func(a ago) time.Time { return now.Add(-time.Duration(a)).UTC().Truncate(time.Millisecond) }
	created := at(p.Age)
	k := idempotent.Key{Operation: p.Key[0], Scope: cmp.Or(p.Key[1], idempotent.Global), ID: p.Key[2]}
	if p.Path != "" {
		k.ID = pathkey.ID(p.Path, k.ID)
	}
	states := map[string]driver.State{"in_progress": driver.StateInProgress, "completed": driver.StateCompleted, "retryable": driver.StateRetryable, "unknown": driver.StateUnknown}
	r = driver.Record{
		ID: k.RecordID(), State: states[p.State], Reason: driver.Reason(cmp.Or(p.Reason, "result")), Attempt: max(p.Attempt, 1),
		Fingerprint: idempotent.FingerprintBytes([]byte(k.ID)), Created: created, LeaseEnd: created.Add(12 * time.Second),
		Codec: p.Codec, Retention: time.Duration(p.Retention), UnresolvedRetention: time.Duration(p.Unresolved), ResultVersion: p.ResultVersion,
		StepNames: p.DeclaredSteps, Encoding: p.Encoding, Ref: p.Ref, RequestID: p.RequestID, TraceParent: p.Trace,
		Announced: p.Announced, PredecessorAnswered: p.Answered, ReconcileAttempts: p.ReconcileAttempts, Exhausted: p.Exhausted,
	}
	if p.Key[0] == "POST /charges" && p.Codec == "" {
		r.Codec = httpform.Encoding
	}
	if p.Result != "" {
		r.Encoding, r.Result = cmp.Or(p.Encoding, "json"), []byte(p.Result)
	} else if p.Base64 != nil {
		r.Result = p.Base64
	}
	if _, hash, _ := strings.Cut(string(r.ID), "#"); p.As != "" {
		r.ID = idempotent.RecordID(p.As + "#" + hash)
	}
	sum := sha256.Sum256([]byte(r.ID))
	copy(r.Version[:], sum[:])
	copy(r.Owner[:], sum[16:])
	if p.Token != "" {
		token, err := hex.DecodeString(p.Token)
		if err != nil {
			return r, err
		}
		r.Owner = driver.Owner{}
		copy(r.Owner[:], token)
	}
	if r.Recovery, err = driver.ParseRecovery(cmp.Or(p.Recovery, "reconcile")); err != nil {
		return r, err
	}
	switch since := at(cmp.Or(p.Since, p.Age)); r.State {
	case driver.StateInProgress:
		r.Reason, r.Due = driver.ReasonClaimed, r.LeaseEnd
	case driver.StateUnknown:
		r.Since, r.Due = since, since.Add(time.Minute)
	case driver.StateCompleted, driver.StateRetryable:
		r.Since, r.Expires = since, since.Add(24*time.Hour)
	default:
		return r, fmt.Errorf("unknown state %q", p.State)
	}
	for to, t := range map[*time.Time]*ago{&r.LeaseEnd: p.Lease, &r.Due: p.Due, &r.Expires: p.Expires, &r.OpenSince: p.Open} {
		if t != nil && *t == never {
			*to = time.Time{}
		} else if t != nil {
			*to = at(*t)
		}
	}
	if r.Due != (time.Time{}) && r.State == driver.StateRetryable {
		r.Expires = time.Time{} // resumable
	}
	for _, s := range p.Steps {
		step := driver.StepRecord{Name: s.Name, Finished: s.By != 0, By: s.By, Attempt: s.Attempt, At: at(s.Age)}
		if s.Once {
			step.Mode = driver.AtMostOnce
		}
		if s.Result != "" {
			step.Encoding, step.Result = cmp.Or(s.Encoding, "json"), []byte(s.Result)
		}
		r.Steps = append(r.Steps, step)
	}
	slices.SortFunc(r.Steps, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
	return r, nil
}
