// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// formatVersion is the version of the JSON form of a record. An attribute that older
// versions may copy without understanding it does not need a new one.
const formatVersion = 1

// attributes are the members of a JSON object, by name.
type attributes = map[string]json.RawMessage

// MarshalJSON returns r as a JSON object for a store that keeps records as text. Its
// attributes have the names that they have in the DynamoDB table; times and durations
// are in milliseconds, bytes in base64, and a zero value is left out. The attributes
// of [Record.Extra] are among them as they were read. Equal records have equal bytes.
//
// MarshalJSON refuses what UnmarshalJSON would refuse, so that an invalid record is
// not stored. A duration below one millisecond is stored as one, because zero means
// the default.
func (r Record) MarshalJSON() ([]byte, error) {
	version := formatVersion
	doc, err := encodeFields(slices.Concat(header(&version), fields(&r)), r.extra[""])
	if err != nil {
		return nil, fmt.Errorf("idempotent: invalid record: %w", err)
	}
	return json.Marshal(doc)
}

// UnmarshalJSON sets r to the record in data, which it does not retain. It refuses an
// unknown format version and an invalid attribute. Its errors name the attribute and
// never contain its value, which may be a result.
func (r *Record) UnmarshalJSON(data []byte) error {
	var doc attributes
	if json.Unmarshal(data, &doc) != nil || doc == nil {
		return malformed("document", "is not a JSON object")
	}
	var version int
	if name, problem := decodeFields(doc, header(&version)); problem != "" {
		return malformed(name, problem)
	}
	if version != formatVersion { // the other attributes may have another meaning
		return fmt.Errorf("idempotent: unknown format version %d of a record: this version reads %d; run the version that wrote it, or a later one", version, formatVersion)
	}
	*r = Record{}
	if name, problem := decodeFields(doc, fields(r)); problem != "" {
		return malformed(name, problem)
	}
	r.addExtra("", doc)
	return nil
}

// malformed returns the error for a record with an invalid part. It names the part
// and not its value.
func malformed(name, problem string) error {
	return fmt.Errorf("idempotent: invalid record: its %s %s; run the version that wrote it, or a later one", name, problem)
}

// addExtra keeps the attributes of a step, or of the record under "", that no field
// has read.
func (r *Record) addExtra(step string, unread attributes) {
	if len(unread) == 0 {
		return
	}
	if r.extra == nil {
		r.extra = map[string]map[string]json.RawMessage{}
	}
	r.extra[step] = unread
}

// encodeFields returns the attributes of fields, and those of extra.
func encodeFields(fields []field, extra attributes) (attributes, error) {
	doc := attributes{}
	maps.Copy(doc, extra)
	for _, f := range fields {
		if f.absent() {
			delete(doc, f.name)
			continue
		}
		value, err := f.value()
		if err == nil {
			doc[f.name], err = json.Marshal(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return doc, nil
}

// decodeFields reads the fields from doc and removes what it has read. If a field is
// invalid, it returns its name and the problem.
func decodeFields(doc attributes, fields []field) (name, problem string) {
	for _, f := range fields {
		raw, ok := doc[f.name]
		switch {
		case !ok && f.required:
			return f.name, "is missing"
		case ok && !f.read(raw):
			return f.name, "is not " + f.kind
		}
		delete(doc, f.name)
	}
	return "", ""
}

// field maps one attribute to one field of a record or a step.
type field struct {
	name     string
	kind     string // for error texts: what a valid value is
	required bool
	absent   func() bool
	value    func() (any, error)
	read     func(json.RawMessage) bool
}

// header is the attribute that every format version has.
func header(version *int) []field { return []field{required(number("v", version))} }

// fields is the only list of the attributes of a record, bound to r.
func fields(r *Record) []field {
	return []field{
		required(text("id", &r.ID)),
		coded("st", "a state", &r.State, State.Code, ParseState),
		text("why", &r.Reason),
		coded("rec", "a recovery", &r.Recovery, Recovery.String, ParseRecovery),
		fixed("own", r.Owner[:]),
		fixed("wid", r.Version[:]),
		number("att", &r.Attempt),
		fixed("fp", r.Fingerprint[:]),
		millis("lease", &r.LeaseEnd),
		millis("exp", &r.Expires),
		millis("ct", &r.Created),
		millis("dt", &r.Since),
		text("enc", &r.Encoding),
		result("res", &r.Result),
		text("rv", &r.ResultVersion),
		duration("ret", &r.Retention),
		duration("uret", &r.UnresolvedRetention),
		text("cdc", &r.Codec),
		names("sn", &r.StepNames),
		number("cn", &r.Chunks.Count),
		number("cl", &r.Chunks.Length),
		sum("ch", r.Chunks.Sum[:]),
		text("ref", &r.Ref),
		text("rid", &r.RequestID),
		text("tp", &r.TraceParent),
		steps("steps", r),
		millis("os", &r.OpenSince),
		flag("pa", &r.PredecessorAnswered),
		millis("due", &r.Due),
		flag("an", &r.Announced),
		flag("x", &r.Exhausted),
		number("rc", &r.ReconcileAttempts),
	}
}

func never() bool { return false }

// unmarshal reads raw into v. It refuses null, which is never written and which
// encoding/json would ignore.
func unmarshal(raw json.RawMessage, v any) bool {
	return string(raw) != "null" && json.Unmarshal(raw, v) == nil
}

func text[T ~string](name string, p *T) field {
	return field{name: name, kind: "a text",
		absent: func() bool { return *p == "" },
		value:  func() (any, error) { return *p, nil },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) },
	}
}

func number(name string, p *int) field {
	return field{name: name, kind: "a whole number",
		absent: func() bool { return *p == 0 },
		value:  func() (any, error) { return *p, nil },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) },
	}
}

func flag(name string, p *bool) field {
	return field{name: name, kind: "true",
		absent: func() bool { return !*p },
		value:  func() (any, error) { return true, nil },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) && *p },
	}
}

func millis(name string, p *time.Time) field {
	return field{name: name, kind: "a time in milliseconds",
		absent: p.IsZero,
		value:  func() (any, error) { return p.UnixMilli(), nil },
		read: func(raw json.RawMessage) bool {
			var ms int64
			ok := unmarshal(raw, &ms)
			*p = time.UnixMilli(ms).UTC()
			return ok
		},
	}
}

// duration is a duration in milliseconds. A shorter one is stored as one
// millisecond, because zero would mean the default.
func duration(name string, p *time.Duration) field {
	return field{name: name, kind: "a duration in milliseconds",
		absent: func() bool { return *p == 0 },
		value: func() (any, error) {
			if *p < 0 {
				return nil, errors.New("a negative duration")
			}
			return max(1, p.Milliseconds()), nil
		},
		read: func(raw json.RawMessage) bool {
			var ms int64
			ok := unmarshal(raw, &ms)
			*p = time.Duration(ms) * time.Millisecond
			return ok && ms > 0 && ms <= math.MaxInt64/int64(time.Millisecond)
		},
	}
}

// names is a list of names. An empty list is invalid, because an empty list of
// declared steps would allow every step.
func names(name string, p *[]string) field {
	valid := func() bool { return len(*p) > 0 && !slices.Contains(*p, "") }
	return field{name: name, kind: "a list of names",
		absent: func() bool { return len(*p) == 0 },
		value: func() (any, error) {
			if !valid() {
				return nil, errors.New("an empty name")
			}
			return *p, nil
		},
		read: func(raw json.RawMessage) bool { return unmarshal(raw, p) && valid() },
	}
}

// coded is a value that is stored as a code word.
func coded[T any](name, kind string, p *T, format func(T) string, parse func(string) (T, error)) field {
	return field{name: name, kind: kind, required: true, absent: never,
		value: func() (any, error) {
			code := format(*p)
			_, err := parse(code)
			return code, err
		},
		read: func(raw json.RawMessage) bool {
			var code string
			if !unmarshal(raw, &code) {
				return false
			}
			var err error
			*p, err = parse(code)
			return err == nil
		},
	}
}

// fixed is an array of bytes.
func fixed(name string, p []byte) field {
	return field{name: name, kind: fmt.Sprintf("%d bytes in base64", len(p)), required: true, absent: never,
		value: func() (any, error) { return p, nil },
		read: func(raw json.RawMessage) bool {
			var b []byte
			return unmarshal(raw, &b) && len(b) == copy(p, b) && len(b) == len(p)
		},
	}
}

// optional omits a field if p is zero.
func optional[T comparable](f field, p *T) field {
	var zero T
	f.required, f.absent = false, func() bool { return *p == zero }
	return f
}

// sum is an array of bytes that is omitted if all bytes are zero.
func sum(name string, p []byte) field {
	f := fixed(name, p)
	f.required, f.absent = false, func() bool { return len(bytes.Trim(p, "\x00")) == 0 }
	return f
}

// result is optional bytes. An empty result is not the same as no result.
func result(name string, p *[]byte) field {
	return field{name: name, kind: "bytes in base64",
		absent: func() bool { return *p == nil },
		value:  func() (any, error) { return *p, nil },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) },
	}
}

// stepFields is the only list of the attributes of a step, bound to s.
func stepFields(s *StepRecord) []field {
	return []field{
		coded("m", "a mode", &s.Mode, StepMode.Code, ParseStepMode),
		required(number("a", &s.Attempt)),
		millis("t", &s.At),
		optional(coded("b", "a source", &s.By, StepSource.Code, ParseStepSource), &s.By),
		text("s", &s.Shape),
		text("e", &s.Encoding),
		result("r", &s.Result),
	}
}

// required makes a field present even if it is zero.
func required(f field) field {
	f.required, f.absent = true, never
	return f
}

// steps is an object with the names of the steps as keys.
func steps(name string, r *Record) field {
	return field{name: name, kind: "an object of steps",
		absent: func() bool { return len(r.Steps) == 0 },
		value: func() (any, error) {
			stored := make(map[string]attributes, len(r.Steps))
			for _, s := range r.Steps {
				switch {
				case !s.Finished:
					s.Result = nil
				case s.Result == nil: // encoding/json would write null
					s.Result = []byte{}
				}
				if !consistent(&s) || s.Finished != (s.Encoding != "") {
					return nil, errors.New("invalid step: no name, or a result or a source without an encoding")
				}
				var err error
				if stored[s.Name], err = encodeFields(stepFields(&s), r.extra[s.Name]); err != nil {
					return nil, err
				}
			}
			return stored, nil
		},
		read: func(raw json.RawMessage) bool {
			var stored map[string]attributes
			if !unmarshal(raw, &stored) {
				return false
			}
			for name, doc := range stored {
				s := StepRecord{Name: name}
				_, problem := decodeFields(doc, stepFields(&s))
				s.Finished = s.Encoding != ""
				if problem != "" || !consistent(&s) {
					return false
				}
				r.addExtra(name, doc)
				r.Steps = append(r.Steps, s)
			}
			slices.SortFunc(r.Steps, func(a, b StepRecord) int { return cmp.Compare(a.Name, b.Name) })
			return len(r.Steps) > 0
		},
	}
}

// consistent reports whether s has a name, and has a result if and only if it has
// finished. A step without a result has no source.
func consistent(s *StepRecord) bool {
	return s.Name != "" && s.Finished == (s.Result != nil) && (s.Finished || s.By == 0)
}
