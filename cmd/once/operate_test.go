// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/pathkey"
	"github.com/once-lambda/once/internal/tabledef"
)

func TestStore_Choice(t *testing.T) {
	t.Parallel()
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, row := range []struct {
		flags       operate.StoreFlags
		getenv      func(string) string
		table, file string
		says        string
	}{
		{operate.StoreFlags{}, env(), "", "", "no store is named"},
		{operate.StoreFlags{Table: "t", File: "f"}, env(), "", "", "both"},
		{operate.StoreFlags{}, env("ONCE_TABLE", "t", "ONCE_FILE", "f"), "", "", "both"},
		{operate.StoreFlags{File: "f", Region: "eu-central-1"}, env(), "", "", "for a table"},
		{operate.StoreFlags{File: "f", Prefix: "ONCE#"}, env(), "", "", "for a table"},
		{operate.StoreFlags{File: "f", Endpoint: "http://127.0.0.1"}, env(), "", "", "for a table"},
		{operate.StoreFlags{Table: "t"}, env(), "t", "", ""},
		{operate.StoreFlags{File: "f"}, env("ONCE_TABLE", "t"), "", "f", ""},
		{operate.StoreFlags{Table: "t"}, env("ONCE_TABLE", "other", "ONCE_FILE", "f"), "t", "", ""},
		{operate.StoreFlags{}, env("ONCE_TABLE", "t"), "t", "", ""},
		{operate.StoreFlags{}, env("ONCE_FILE", "f"), "", "f", ""},
		{operate.StoreFlags{Name: "old-orders"}, env("ONCE_TABLE", "t", "ONCE_TABLE_OLD_ORDERS", "o"), "o", "", ""},
		{operate.StoreFlags{Name: "old-orders"}, env("ONCE_TABLE", "t", "ONCE_FILE_OLD_ORDERS", "f"), "", "f", ""},
		{operate.StoreFlags{Name: "orders"}, env("ONCE_TABLE", "t"), "", "", "set ONCE_TABLE_ORDERS or ONCE_FILE_ORDERS"},
		{operate.StoreFlags{Name: "orders", Table: "t"}, env("ONCE_TABLE_ORDERS", "o"), "", "", "--store orders"},
		{operate.StoreFlags{Name: "orders", File: "f"}, env("ONCE_TABLE_ORDERS", "o"), "", "", "--store orders"},
	} {
		table, file, err := row.flags.Choose(row.getenv)
		if row.says != "" {
			if operate.ExitCode(err) != operate.ExitUsage || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%+v: got %v, want %q", row.flags, err, row.says)
			}
		} else if err != nil || table != row.table || file != row.file {
			t.Errorf("%+v: got %q, %q, %v", row.flags, table, file, err)
		}
	}
}

// A setting of the table comes from its flag. The environment describes the table
// that it names, and no other.
func TestSetting(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ONCE_CHUNK_TABLE", "ONCE_PARTITION_KEY", "ONCE_SORT_KEY", "ONCE_PREFIX", "ONCE_TTL_ATTRIBUTE", "ONCE_CONSISTENCY"} {
		getenv := func(asked string) string { return "of " + asked }
		flags := operate.StoreFlags{ChunkTable: "flag", PartitionKey: "flag", SortKey: "flag", Prefix: "flag", TTLAttribute: "flag", Consistency: "flag"}
		for _, store := range []string{"", "orders"} {
			asked := tabledef.Variable(name, store)
			if flags.Name = store; (&operate.Env{Getenv: getenv, Flags: flags}).Setting(asked) != "flag" {
				t.Errorf("%s is not that of its flag", asked)
			}
			if got := (&operate.Env{Getenv: getenv, Flags: operate.StoreFlags{Name: store}}).Setting(asked); got != "of "+asked {
				t.Errorf("%s is %q, want that of the environment", asked, got)
			}
		}
		if got := (&operate.Env{Getenv: getenv, Flags: operate.StoreFlags{Table: "t"}}).Setting(name); got != "" {
			t.Errorf("%s of another table is %q", name, got)
		}
	}
}

// slow is a store of which each read takes a second.
type slow struct{ operate.Store }

// Get returns a record.
func (slow) Get(_ context.Context, id idempotent.RecordID) (*driver.Record, error) {
	time.Sleep(time.Second)
	return &driver.Record{ID: id}, nil
}

// The records of a list are read 16 at a time, also before its error, which a reader
// that stops does not get.
func TestRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := func(yield func(driver.Listed, error) bool) {
			for i := range 40 {
				if !yield(driver.Listed{ID: idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID()}, nil) {
					return
				}
			}
			yield(driver.Listed{}, io.ErrUnexpectedEOF)
		}
		for stop, seconds := range map[int]time.Duration{5: 1, 33: 3, 50: 3} {
			n, began := 0, time.Now()
			for r, err := range operate.Read(t.Context(), slow{}, list, nil, func(*driver.Record) bool { return true }) {
				if n++; (err != nil) != (n == 41) || (r.ID == "") != (n == 41) {
					t.Errorf("%d: %s, %v", n, r.ID, err)
				}
				if n == stop {
					break
				}
			}
			if took := time.Since(began); n != min(stop, 41) || took != seconds*time.Second {
				t.Errorf("%d yielded in %s to a reader of %d", n, took, stop)
			}
		}
	})
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ operation, code, says string }{
		{"Query", "ValidationException", "--no-index"},
		{"PutItem", "ValidationException", "once table check"},
		{"UpdateTable", "ValidationException", ""}, // about regions, not about keys
		{"Scan", "ResourceNotFoundException", "once table create"},
		{"Query", "ResourceNotFoundException", "once table check"}, // also for a missing index
		{"Scan", "ExpiredTokenException", "log in again"},
		{"Query", "ExpiredTokenException", "log in again"},
		{"Scan", "UnrecognizedClientException", "log in again"},
		{"Query", "AccessDeniedException", "--no-index"}, // the store's error names the permission
		{"Scan", "AccessDeniedException", "--profile"},
		{"Scan", "InternalServerError", ""},
	} {
		err := fmt.Errorf("dynamostore: %w", &smithy.OperationError{OperationName: row.operation, Err: &smithy.GenericAPIError{Code: row.code}})
		if got := operate.Advice(err, false); row.says == "" && got != "" || !strings.Contains(got, row.says) {
			t.Errorf("%s, %s: got %q, want %q", row.operation, row.code, got, row.says)
		}
	}
	if got := operate.Advice(fmt.Errorf("dynamostore: %w", &url.Error{Op: "Post", Err: io.EOF}), false); !strings.Contains(got, "the network") {
		t.Errorf("no network: got %q", got)
	}
	if got := operate.Advice(&smithy.GenericAPIError{Code: "ResourceNotFoundException"}, false); !strings.Contains(got, "once table create") {
		t.Errorf("no operation: got %q", got)
	}
	if got := operate.Advice(errors.New("any"), false); got != "" {
		t.Errorf("got %q", got)
	}
}

// The oldest records are kept, in whatever order they are found, and few others.
func TestOldest(t *testing.T) {
	t.Parallel()
	const many = 50
	for _, limit := range []int{1, 7, many - 1, many, many + 1} {
		o := &oldest{limit: limit}
		for i := range many {
			age := time.Duration((i*37)%many) * time.Minute
			o.add(&driver.Record{ID: idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID(), Created: night.Add(-age)})
			if len(o.views) >= 2*limit || i+1 < 2*limit && len(o.views) != i+1 {
				t.Fatalf("%d records of %d are held for a limit of %d", len(o.views), i+1, limit)
			}
		}
		views := o.sorted()
		if len(views) != min(limit, many) {
			t.Errorf("limit %d: %d records", limit, len(views))
		}
		for i, v := range views {
			if want := night.Add(-time.Duration(many-1-i) * time.Minute); !v.Created.Equal(want) {
				t.Errorf("limit %d: %d: created %s, want %s", limit, i, v.Created, want)
			}
		}
	}
}

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
