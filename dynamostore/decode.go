package dynamostore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// decode returns the record in an item. Its errors name the invalid attribute and
// never contain a value.
func decode(it item) (*driver.Record, error) {
	d := decoder{kind: "record", item: it}
	d.format()
	steps, unknownOfSteps := d.steps()
	r := &driver.Record{
		ID:                driver.RecordID(d.text(PartitionKey, required)),
		Attempt:           int(d.number(attrAttempt, required)),
		Reason:            driver.Reason(d.text(attrReason, optional)),
		LeaseEnd:          d.time(attrLeaseEnd, optional),
		Expires:           d.time(attrExpires, optional),
		Created:           d.time(attrCreated, optional),
		Settled:           d.time(attrSettled, optional),
		Encoding:          d.text(attrEncoding, optional),
		Result:            d.bytes(attrResult, optional),
		Chunks:            d.chunks(),
		ResultVersion:     d.text(attrResultVersion, optional),
		Codec:             d.text(attrCodec, optional),
		StepNames:         d.stepNames(),
		Ref:               d.text(attrRef, optional),
		RequestID:         d.text(attrRequestID, optional),
		Steps:             steps,
		OpenSince:         d.time(attrOpenSince, optional),
		Due:               d.time(IndexSortKey, optional),
		Exhausted:         strings.HasPrefix(d.text(IndexPartitionKey, optional), exhaustedPrefix),
		ReconcileAttempts: int(d.number(attrReconcileAttempts, optional)),

		Retention:           d.duration(attrRetention),
		UnresolvedRetention: d.duration(attrUnresolved),
	}
	d.fixed(attrOwner, r.Owner[:])
	d.fixed(attrVersion, r.Version[:])
	d.fixed(attrFingerprint, r.Fingerprint[:])
	var err error
	if r.State, err = driver.ParseState(d.text(attrState, required)); err != nil {
		d.fail(attrState, fromLater)
	}
	if r.Recovery, err = driver.ParseRecovery(d.text(attrRecovery, required)); err != nil {
		d.fail(attrRecovery, fromLater)
	}
	d.number(TTLAttribute, optional) // derived from exp, so its value is not used
	if d.err == nil && r.State == driver.StateInProgress && r.LeaseEnd.IsZero() {
		d.fail(attrLeaseEnd, "is missing")
	}
	if d.err != nil {
		return nil, d.err
	}
	if rest := unknown(it, known); rest != nil || unknownOfSteps != nil {
		r.Extra = extra{record: rest, steps: unknownOfSteps}
	}
	return r, nil
}

// unknown returns the attributes that this version does not know, or nil.
func unknown(it item, known func(name string) bool) (rest item) {
	for name, value := range it {
		if !known(name) {
			if rest == nil {
				rest = item{}
			}
			rest[name] = value
		}
	}
	return rest
}

// fromLater describes a state or a recovery that this version does not know.
// Decoding fails instead of guessing.
const fromLater = "has a value that this version does not know; if a newer version wrote it, deploy that version here too"

// decoder reads attributes and holds the first error.
type decoder struct {
	kind string // what the item is, for error texts
	item item
	err  error
}

// presence is whether an attribute may be missing.
type presence bool

const (
	required presence = true
	optional presence = false
)

func (d *decoder) fail(name, problem string) {
	if d.err == nil {
		d.err = fmt.Errorf("dynamostore: invalid %s: attribute %s %s", d.kind, name, problem)
	}
}

// format checks the version of the format. It runs first, because in another
// format version the other attributes may have a different meaning.
func (d *decoder) format() {
	if version := d.number(attrFormat, required); d.err == nil && version != 1 {
		d.err = fmt.Errorf("dynamostore: unknown format version of a %s (attribute %s): deploy the newer version here too", d.kind, attrFormat)
	}
}

func (d *decoder) text(name string, p presence) string {
	switch v := d.item[name].(type) {
	case *types.AttributeValueMemberS:
		if v.Value == "" && p == required {
			d.fail(name, "is empty")
		}
		return v.Value
	case nil:
		d.missing(name, p)
	default:
		d.fail(name, "is not a string")
	}
	return ""
}

// bytes returns nil only if the attribute is missing. An empty result is not the
// same as no result.
func (d *decoder) bytes(name string, p presence) []byte {
	switch v := d.item[name].(type) {
	case *types.AttributeValueMemberB:
		return v.Value
	case nil:
		d.missing(name, p)
	default:
		d.fail(name, "is not binary")
	}
	return nil
}

func (d *decoder) number(name string, p presence) int64 {
	switch v := d.item[name].(type) {
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			d.fail(name, "is not a 64-bit integer")
		}
		return n
	case nil:
		d.missing(name, p)
	default:
		d.fail(name, "is not a number")
	}
	return 0
}

func (d *decoder) time(name string, p presence) time.Time {
	if d.item[name] == nil {
		d.missing(name, p)
		return time.Time{}
	}
	return time.UnixMilli(d.number(name, p)).UTC()
}

// duration reads a duration, which is missing if it is the default.
func (d *decoder) duration(name string) time.Duration {
	ms := d.number(name, optional)
	if d.item[name] != nil && (ms < 1 || ms > math.MaxInt64/int64(time.Millisecond)) {
		d.fail(name, "is not a duration")
	}
	return time.Duration(ms) * time.Millisecond
}

// stepNames reads the declared steps of the operation. An empty list is invalid,
// because it would allow every step.
func (d *decoder) stepNames() []string {
	if d.item[attrStepNames] == nil {
		return nil
	}
	list, ok := d.item[attrStepNames].(*types.AttributeValueMemberL)
	if !ok || len(list.Value) == 0 {
		d.fail(attrStepNames, "is not a list of names")
		return nil
	}
	names := make([]string, len(list.Value))
	for i, value := range list.Value {
		name, ok := value.(*types.AttributeValueMemberS)
		if !ok || name.Value == "" {
			d.fail(attrStepNames, "is not a list of names")
			return nil
		}
		names[i] = name.Value
	}
	return names
}

// chunks reads where a large result is. The three attributes exist together or not
// at all: a record without cn would look like one without a result.
func (d *decoder) chunks() (c driver.Chunks) {
	if d.item[attrChunkCount] == nil && d.item[attrChunkLength] == nil && d.item[attrChunkSum] == nil {
		return c
	}
	if c.Count = int(d.number(attrChunkCount, required)); c.Count < 1 {
		d.fail(attrChunkCount, "is not a valid number of chunks")
	}
	if c.Length = int(d.number(attrChunkLength, required)); c.Length < 0 {
		d.fail(attrChunkLength, "is not a valid length")
	}
	d.fixed(attrChunkSum, c.Sum[:])
	return c
}

// fixed reads exactly len(dst) bytes.
func (d *decoder) fixed(name string, dst []byte) {
	b := d.bytes(name, required)
	if len(b) != len(dst) {
		d.fail(name, fmt.Sprintf("does not have %d bytes", len(dst)))
		return
	}
	copy(dst, b)
}

func (d *decoder) missing(name string, p presence) {
	if p == required {
		d.fail(name, "is missing")
	}
}
