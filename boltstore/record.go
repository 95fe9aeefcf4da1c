// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// bucket holds all records, from record id to encoded record.
var bucket = []byte("once.records")

// A stored record is
//
//	CRC-32C of id and what follows (4 bytes), format version (1 byte), document
//
// where the document is a JSON object with the member names of the DynamoDB table,
// times in milliseconds and bytes in base64. The id is the key. Every format
// version has this header, so that damage is not mistaken for a later version.

const (
	formatVersion = 1
	headerSize    = crc32.Size + 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// document is a decoded JSON object.
type document map[string]json.RawMessage

// extra holds the members that a later version wrote and this one does not know.
// It is in [driver.Record.Extra] and is written back. Records share it, so it is
// never modified.
type extra struct {
	record document            // of the record
	steps  map[string]document // of its steps, by name
}

// encode returns r in its stored form. It refuses what decode would refuse, so
// that an invalid record is not stored.
func encode(r *driver.Record) ([]byte, error) {
	rest, _ := r.Extra.(extra)
	doc, err := encodeFields(fields(r, &rest), rest.record)
	if err != nil {
		return nil, fmt.Errorf("boltstore: encode a record: %w", err)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("boltstore: encode a record: %w", err)
	}
	return seal(r.ID, formatVersion, body), nil
}

// encodeFields returns the fields as a document, together with the members that a
// later version wrote.
func encodeFields(fields []field, rest document) (document, error) {
	doc := document{}
	maps.Copy(doc, rest)
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

// decodeFields reads the fields from doc and returns the remaining members, or
// nil. If a field is invalid, it returns its name and the problem.
func decodeFields(doc document, fields []field) (rest document, name, problem string) {
	for _, f := range fields {
		raw, ok := doc[f.name]
		switch {
		case !ok && f.required:
			return nil, f.name, "is missing"
		case ok && !f.read(raw):
			return nil, f.name, "is not " + f.kind
		}
		delete(doc, f.name)
	}
	if len(doc) == 0 {
		return nil, "", ""
	}
	return doc, "", ""
}

// seal puts the header before a document.
func seal(id driver.RecordID, version byte, body []byte) []byte {
	out := make([]byte, headerSize, headerSize+len(body))
	out[crc32.Size] = version
	out = append(out, body...)
	binary.BigEndian.PutUint32(out, checksum(id, out[crc32.Size:]))
	return out
}

// intact returns an error if the stored record id is damaged. It works for every
// format version.
func intact(id driver.RecordID, data []byte) error {
	switch {
	case len(data) < headerSize:
		return &damagedError{what: "a record is truncated"}
	case binary.BigEndian.Uint32(data) != checksum(id, data[crc32.Size:]):
		return &damagedError{what: "a record's checksum is wrong"}
	}
	return nil
}

// decode reads the stored record id. It shares no memory with data.
func decode(id driver.RecordID, data []byte) (*driver.Record, error) {
	if err := intact(id, data); err != nil {
		return nil, err
	}
	if v := data[crc32.Size]; v != formatVersion {
		return nil, fmt.Errorf("unknown format version %d of a record: this version of boltstore reads %d; run the version that wrote it, or a later one", v, formatVersion)
	}
	var doc document
	if json.Unmarshal(data[headerSize:], &doc) != nil || doc == nil {
		return nil, malformed("document", "is not a JSON object")
	}
	r, unknown := &driver.Record{ID: id}, extra{}
	rest, name, problem := decodeFields(doc, fields(r, &unknown))
	if problem != "" {
		return nil, malformed(name, problem)
	}
	if unknown.record = rest; rest != nil || unknown.steps != nil {
		r.Extra = unknown
	}
	return r, nil
}

func checksum(id driver.RecordID, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), castagnoli), castagnoli, rest)
}

// malformed returns the error for an undamaged record with an invalid part. It
// names the part and not its value, which may be a result.
func malformed(field, problem string) error {
	return fmt.Errorf("invalid record: its %s %s; run the version that wrote it, or a later one", field, problem)
}

// field maps one member of a document to one field of a record or a step.
type field struct {
	name     string
	kind     string // for error texts: what a valid value is
	required bool
	absent   func() bool
	value    func() (any, error)
	read     func(json.RawMessage) bool
}

// fields is the only list of the stored fields of a record. They are bound to r
// and to the members that a later version wrote into its steps.
func fields(r *driver.Record, rest *extra) []field {
	return []field{
		coded("st", "a state", &r.State, driver.State.Code, driver.ParseState),
		text("why", &r.Reason),
		coded("rec", "a recovery", &r.Recovery, driver.Recovery.String, driver.ParseRecovery),
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
		number("cn", &r.Chunks.Count), // used by other stores: here every result is in its record
		number("cl", &r.Chunks.Length),
		sum("ch", r.Chunks.Sum[:]),
		text("ref", &r.Ref),
		text("rid", &r.RequestID),
		text("tp", &r.TraceParent),
		steps("steps", &r.Steps, &rest.steps),
		millis("os", &r.OpenSince),
		flag("pa", &r.PredecessorAnswered),
		millis("due", &r.Due),
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

// stepFields is the only list of the stored fields of a step, bound to s. The
// members have the names of the DynamoDB table.
func stepFields(s *driver.StepRecord) []field {
	return []field{
		coded("m", "a mode", &s.Mode, driver.StepMode.Code, driver.ParseStepMode),
		required(number("a", &s.Attempt)),
		millis("t", &s.At),
		optional(coded("b", "a source", &s.By, driver.StepSource.Code, driver.ParseStepSource), &s.By),
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

// steps stores the steps of a record as an object with their names as keys. rest
// has the members that a later version wrote into a step.
func steps(name string, p *[]driver.StepRecord, rest *map[string]document) field {
	return field{name: name, kind: "an object of steps",
		absent: func() bool { return len(*p) == 0 },
		value: func() (any, error) {
			stored := make(map[string]document, len(*p))
			for _, s := range *p {
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
				if stored[s.Name], err = encodeFields(stepFields(&s), (*rest)[s.Name]); err != nil {
					return nil, err
				}
			}
			return stored, nil
		},
		read: func(raw json.RawMessage) bool {
			var stored map[string]document
			if !unmarshal(raw, &stored) {
				return false
			}
			for name, doc := range stored {
				s := driver.StepRecord{Name: name}
				unknown, _, problem := decodeFields(doc, stepFields(&s))
				s.Finished = s.Encoding != ""
				if problem != "" || !consistent(&s) {
					return false
				}
				if unknown != nil {
					if *rest == nil {
						*rest = map[string]document{}
					}
					(*rest)[name] = unknown
				}
				*p = append(*p, s)
			}
			slices.SortFunc(*p, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
			return len(*p) > 0
		},
	}
}

// consistent reports whether s has a name, and has a result if and only if it has
// finished. A step without a result has no source.
func consistent(s *driver.StepRecord) bool {
	return s.Name != "" && s.Finished == (s.Result != nil) && (s.Finished || s.By == 0)
}

// damagedError reports that the content of the file differs from what was written.
type damagedError struct{ path, what string }

func (e *damagedError) Error() string {
	return fmt.Sprintf("boltstore: %s is damaged (%s): restore it from a copy, or move it away to start with an empty store; requests that ran since the copy, or all requests, may then run again", e.path, e.what)
}

func isDamage(err error) bool {
	var e *damagedError
	return errors.As(err, &e)
}
