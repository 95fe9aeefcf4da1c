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

// decode returns the record in it. Its error names the attribute that is wrong
// and never a value.
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
	d.number(TTLAttribute, optional) // derived from exp, so nothing is read from it
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

// unknown returns the attributes of it that this version does not know, or nil.
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

// fromLater is said of a state or a promise that this version does not know: it
// is not ours to guess.
const fromLater = "has a value that this version does not know; if a newer version wrote it, deploy that here too"

// decoder reads attributes and keeps the first thing that is wrong.
type decoder struct {
	kind string // what the item is, for people
	item item
	err  error
}

// presence says whether an attribute may be missing.
type presence bool

const (
	required presence = true
	optional presence = false
)

func (d *decoder) fail(name, problem string) {
	if d.err == nil {
		d.err = fmt.Errorf("dynamostore: a %s is damaged, or not ours: attribute %s %s", d.kind, name, problem)
	}
}

// format checks the version of the format. It comes first: in a format of
// another version the rest may mean something else.
func (d *decoder) format() {
	if version := d.number(attrFormat, required); d.err == nil && version != 1 {
		d.err = fmt.Errorf("dynamostore: a %s is in a format that this version does not know (attribute %s); deploy the newer version here too", d.kind, attrFormat)
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

// bytes returns nil only where the attribute is missing: an empty result is
// not the same as none.
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
			d.fail(name, "is not a whole number of 64 bits")
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

// duration reads a length of time, which is absent where it is the default.
func (d *decoder) duration(name string) time.Duration {
	ms := d.number(name, optional)
	if d.item[name] != nil && (ms < 1 || ms > math.MaxInt64/int64(time.Millisecond)) {
		d.fail(name, "is not a length of time")
	}
	return time.Duration(ms) * time.Millisecond
}

// stepNames reads the steps that the operation declared. An empty list would
// allow every step, so it counts as damage.
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

// chunks reads where a large result is. One of the three attributes without the
// others is a damage: a record without cn would look like one without a result.
func (d *decoder) chunks() (c driver.Chunks) {
	if d.item[attrChunkCount] == nil && d.item[attrChunkLength] == nil && d.item[attrChunkSum] == nil {
		return c
	}
	if c.Count = int(d.number(attrChunkCount, required)); c.Count < 1 {
		d.fail(attrChunkCount, "is not a number of chunks")
	}
	if c.Length = int(d.number(attrChunkLength, required)); c.Length < 0 {
		d.fail(attrChunkLength, "is not a length")
	}
	d.fixed(attrChunkSum, c.Sum[:])
	return c
}

// fixed reads exactly len(dst) bytes.
func (d *decoder) fixed(name string, dst []byte) {
	b := d.bytes(name, required)
	if len(b) != len(dst) {
		d.fail(name, fmt.Sprintf("is not of %d bytes", len(dst)))
		return
	}
	copy(dst, b)
}

func (d *decoder) missing(name string, p presence) {
	if p == required {
		d.fail(name, "is missing")
	}
}
