package boltstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// A stored record is
//
//	CRC-32C of id and what follows (4 bytes), format version (1 byte), document
//
// where the document is a JSON object with the member names of the DynamoDB
// table, times in milliseconds and bytes in base64. The id is the key. Every
// version begins so: damage must not be taken for a version of the future.

const (
	formatVersion = 1
	headerSize    = crc32.Size + 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extra holds the members of a document that a later version wrote. It travels
// in [driver.Record.Extra] and is written back.
type extra map[string]json.RawMessage

// encode returns r as it is stored.
func encode(r *driver.Record) ([]byte, error) {
	doc := map[string]json.RawMessage{}
	if unknown, ok := r.Extra.(extra); ok {
		maps.Copy(doc, unknown)
	}
	for _, f := range fields(r) {
		if f.absent() {
			delete(doc, f.name)
			continue
		}
		raw, err := json.Marshal(f.value())
		if err != nil {
			return nil, fmt.Errorf("boltstore: encode the record's %s: %w", f.name, err)
		}
		doc[f.name] = raw
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("boltstore: encode a record: %w", err)
	}
	return seal(r.ID, formatVersion, body), nil
}

// seal puts the header before a document.
func seal(id driver.RecordID, version byte, body []byte) []byte {
	out := make([]byte, headerSize, headerSize+len(body))
	out[crc32.Size] = version
	out = append(out, body...)
	binary.BigEndian.PutUint32(out, checksum(id, out[crc32.Size:]))
	return out
}

// intact reports damage to the stored record id, whatever its version.
func intact(id driver.RecordID, data []byte) error {
	switch {
	case len(data) < headerSize:
		return &damagedError{what: "a record is cut off"}
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
		return nil, fmt.Errorf("a record cannot be read: it has format version %d, and this version of boltstore reads %d; run the version that wrote it, or a later one", v, formatVersion)
	}
	var doc map[string]json.RawMessage
	if json.Unmarshal(data[headerSize:], &doc) != nil || doc == nil {
		return nil, malformed("document", "is not a JSON object")
	}
	r := &driver.Record{ID: id}
	for _, f := range fields(r) {
		raw, ok := doc[f.name]
		if !ok {
			if f.required {
				return nil, malformed(f.name, "is missing")
			}
			continue
		}
		if !f.read(raw) {
			return nil, malformed(f.name, "is not "+f.kind)
		}
		delete(doc, f.name)
	}
	if len(doc) > 0 {
		r.Extra = extra(doc)
	}
	return r, nil
}

func checksum(id driver.RecordID, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), castagnoli), castagnoli, rest)
}

// malformed names the part of a whole record that cannot be read, and never
// what it holds: that may be a result.
func malformed(field, problem string) error {
	return fmt.Errorf("a record cannot be read: its %s %s; run the version that wrote it, or a later one", field, problem)
}

// field is one member of the document and one field of the record.
type field struct {
	name     string
	kind     string // for people: what a valid value is
	required bool
	absent   func() bool
	value    func() any
	read     func(json.RawMessage) bool
}

// fields is the one table of what is stored, bound to r.
func fields(r *driver.Record) []field {
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
		millis("dt", &r.Settled),
		text("enc", &r.Encoding),
		result("res", &r.Result),
		text("rv", &r.ResultVersion),
		number("cn", &r.Chunks.Count), // another store's: here every result is in its record
		number("cl", &r.Chunks.Length),
		sum("ch", r.Chunks.Sum[:]),
		text("ref", &r.Ref),
		text("rid", &r.RequestID),
		steps("steps", &r.Steps),
		millis("due", &r.Due),
		flag("x", &r.Exhausted),
		number("rc", &r.ReconcileAttempts),
	}
}

func never() bool { return false }

// unmarshal reads raw into v. JSON's null, which encoding/json would take for
// "leave it as it is", is nothing we write.
func unmarshal(raw json.RawMessage, v any) bool {
	return string(raw) != "null" && json.Unmarshal(raw, v) == nil
}

func text[T ~string](name string, p *T) field {
	return field{name: name, kind: "a text",
		absent: func() bool { return *p == "" },
		value:  func() any { return *p },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) },
	}
}

func number(name string, p *int) field {
	return field{name: name, kind: "a whole number",
		absent: func() bool { return *p == 0 },
		value:  func() any { return *p },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) },
	}
}

func flag(name string, p *bool) field {
	return field{name: name, kind: "true",
		absent: func() bool { return !*p },
		value:  func() any { return true },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) && *p },
	}
}

func millis(name string, p *time.Time) field {
	return field{name: name, kind: "a time in milliseconds",
		absent: p.IsZero,
		value:  func() any { return p.UnixMilli() },
		read: func(raw json.RawMessage) bool {
			var ms int64
			ok := unmarshal(raw, &ms)
			*p = time.UnixMilli(ms).UTC()
			return ok
		},
	}
}

// coded is a value that is stored by a code word.
func coded[T any](name, kind string, p *T, format func(T) string, parse func(string) (T, error)) field {
	return field{name: name, kind: kind, required: true, absent: never,
		value: func() any { return format(*p) },
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
		value: func() any { return p },
		read: func(raw json.RawMessage) bool {
			var b []byte
			return unmarshal(raw, &b) && len(b) == copy(p, b) && len(b) == len(p)
		},
	}
}

// sum is an array of bytes that is absent where all of them are zero.
func sum(name string, p []byte) field {
	f := fixed(name, p)
	f.required, f.absent = false, func() bool { return len(bytes.Trim(p, "\x00")) == 0 }
	return f
}

// result tells no result from an empty one.
func result(name string, p *[]byte) field {
	return field{name: name, kind: "bytes in base64",
		absent: func() bool { return *p == nil },
		value:  func() any { return *p },
		read:   func(raw json.RawMessage) bool { return unmarshal(raw, p) },
	}
}
