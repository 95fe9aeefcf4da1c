// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/attributejson"
	"github.com/once-lambda/once/internal/tabledef"
)

// formatVersion is the version of the item's format. An attribute that older
// versions may copy without understanding it does not need a new format version.
const formatVersion = "1"

// attributeCount is how many attributes a record usually has, at most: 13 when it is
// claimed, 16 with a result, a few more with options. A map for all 32 takes twice
// the memory.
const attributeCount = 20

// ttlGrace is how long after the record's expiry DynamoDB may delete the item. The
// record counts as missing from its expiry on. The item stays for callers whose
// clock is slow and for operators who look at it.
const ttlGrace = time.Hour

// encode returns r as an item. It refuses what decode would refuse, so that an
// invalid record is not stored.
func (l *layout) encode(r *driver.Record) (item, error) {
	state, recovery := r.State.Code(), r.Recovery.String()
	switch {
	case r.ID == "":
		return nil, errors.New("dynamostore: the record has no id")
	case !isState(state):
		return nil, errors.New("dynamostore: invalid record: unknown State")
	case !isRecovery(recovery):
		return nil, errors.New("dynamostore: invalid record: unknown Recovery")
	case r.State == driver.StateInProgress && r.LeaseEnd.IsZero():
		return nil, errors.New("dynamostore: invalid record: in progress without a LeaseEnd")
	case r.Chunks != (driver.Chunks{}) && (r.Chunks.Count < 1 || r.Chunks.Length < 0):
		return nil, errors.New("dynamostore: invalid record: Chunks without a Count, or with a negative Length")
	case min(r.Retention, r.UnresolvedRetention) < 0:
		return nil, errors.New("dynamostore: invalid record: negative retention")
	case slices.Contains(r.StepNames, ""):
		return nil, errors.New("dynamostore: invalid record: a declared step without a name")
	case r.Exhausted && r.Due.IsZero():
		return nil, errors.New("dynamostore: invalid record: Exhausted without a Due, so no list would show it")
	case r.Announced && (r.State != driver.StateInProgress || r.Due.IsZero() || r.Exhausted):
		return nil, errors.New("dynamostore: invalid record: Announced, but not in progress with a Due")
	}

	it, v := make(item, attributeCount), newValues()
	if err := putExtra(it, r.Extra()[""], l.known); err != nil {
		return nil, err
	}
	l.place(it, string(r.ID))
	it[attrFormat] = &types.AttributeValueMemberN{Value: formatVersion}
	it[attrState] = v.text(state)
	it[attrRecovery] = v.text(recovery)
	it[attrOwner] = v.copied(r.Owner[:])
	it[attrVersion] = v.copied(r.Version[:])
	it[attrAttempt] = v.number(int64(r.Attempt))
	it[attrFingerprint] = v.copied(r.Fingerprint[:])

	v.putText(it, attrReason, string(r.Reason))
	v.putText(it, attrEncoding, r.Encoding)
	v.putText(it, attrResultVersion, r.ResultVersion)
	v.putDuration(it, attrRetention, r.Retention)
	v.putDuration(it, attrUnresolved, r.UnresolvedRetention)
	v.putText(it, attrCodec, r.Codec)
	v.putText(it, attrRef, r.Ref)
	v.putText(it, attrRequestID, r.RequestID)
	v.putText(it, attrTraceParent, r.TraceParent)
	v.putTime(it, attrLeaseEnd, r.LeaseEnd)
	v.putTime(it, attrExpires, r.Expires)
	v.putTime(it, attrCreated, r.Created)
	v.putTime(it, attrSettled, r.Since)
	v.putTime(it, attrOpenSince, r.OpenSince)
	if r.PredecessorAnswered {
		it[attrPredecessor] = &types.AttributeValueMemberBOOL{Value: true}
	}
	if !r.Expires.IsZero() {
		it[l.ttl] = v.number(ceilSeconds(r.Expires.Add(ttlGrace)))
	}
	if r.Result != nil {
		it[attrResult] = v.bytes(r.Result)
	}
	if c := &r.Chunks; c.Count != 0 {
		it[attrChunkCount] = v.number(int64(c.Count))
		it[attrChunkLength] = v.number(int64(c.Length))
		it[attrChunkSum] = v.copied(c.Sum[:])
	}
	if r.ReconcileAttempts != 0 {
		it[attrReconcileAttempts] = v.number(int64(r.ReconcileAttempts))
	}
	if !r.Due.IsZero() {
		it[tabledef.IndexSortKey] = v.number(r.Due.UnixMilli())
		// An item without the other key of the index is not in it, so a record in progress
		// costs no write there unless it is announced.
		if r.State != driver.StateInProgress || r.Exhausted || r.Announced {
			it[tabledef.IndexPartitionKey] = v.text(indexKey(string(r.ID), r.Exhausted))
		}
	}
	if len(r.StepNames) > 0 {
		v.reserve(len(r.StepNames), 0, 0)
		names := make([]types.AttributeValue, len(r.StepNames))
		for i, name := range r.StepNames {
			names[i] = v.text(name)
		}
		it[attrStepNames] = &types.AttributeValueMemberL{Value: names}
	}
	if len(r.Steps) > 0 {
		steps, err := v.steps(r)
		if err != nil {
			return nil, err
		}
		it[attrSteps] = steps
	}
	v.write()
	return it, nil
}

// values are the values of a record's attributes. They are allocated together: a record
// has some sixteen, and one by one they would take more time than all else here.
type values struct {
	texts   []types.AttributeValueMemberS // that are free
	blobs   []types.AttributeValueMemberB // that are free
	numbers []types.AttributeValueMemberN
	ends    []uint32 // of the digits of each number that is taken
	digits  []byte
	arrays  []byte

	first struct { // what a record without steps needs
		texts   [8]types.AttributeValueMemberS
		blobs   [4]types.AttributeValueMemberB
		numbers [10]types.AttributeValueMemberN
		ends    [10]uint32
		digits  [128]byte
		arrays  [96]byte
	}
}

func newValues() *values {
	v := &values{}
	f := &v.first
	v.texts, v.blobs, v.numbers, v.ends, v.digits, v.arrays = f.texts[:], f.blobs[:], f.numbers[:], f.ends[:0], f.digits[:0], f.arrays[:0]
	return v
}

// reserve allocates so many values for what follows.
func (v *values) reserve(texts, blobs, numbers int) {
	v.write()
	const usual = 8 // digits, on average: of a time and an attempt
	v.texts, v.blobs = make([]types.AttributeValueMemberS, texts), make([]types.AttributeValueMemberB, blobs)
	v.numbers, v.ends, v.digits = make([]types.AttributeValueMemberN, numbers), make([]uint32, 0, numbers), make([]byte, 0, usual*numbers)
}

func (v *values) text(s string) *types.AttributeValueMemberS {
	if len(v.texts) == 0 {
		return text(s)
	}
	t := &v.texts[0]
	v.texts = v.texts[1:]
	t.Value = s
	return t
}

func (v *values) bytes(b []byte) *types.AttributeValueMemberB {
	if len(v.blobs) == 0 {
		return &types.AttributeValueMemberB{Value: b}
	}
	t := &v.blobs[0]
	v.blobs = v.blobs[1:]
	t.Value = b
	return t
}

// copied returns a value with a copy of b, so that a record need not be on the heap
// because of its arrays.
func (v *values) copied(b []byte) *types.AttributeValueMemberB {
	v.arrays = append(v.arrays, b...)
	return v.bytes(v.arrays[len(v.arrays)-len(b) : len(v.arrays) : len(v.arrays)])
}

// number returns a value that has n after write.
func (v *values) number(n int64) *types.AttributeValueMemberN {
	if len(v.ends) == len(v.numbers) {
		return number(n)
	}
	t := &v.numbers[len(v.ends)]
	v.digits = strconv.AppendInt(v.digits, n, 10)
	v.ends = append(v.ends, uint32(len(v.digits)))
	return t
}

// write writes the numbers, as parts of one string.
func (v *values) write() {
	all, begin := string(v.digits), uint32(0)
	for i, end := range v.ends {
		v.numbers[i].Value = all[begin:end]
		begin = end
	}
}

func (v *values) putText(it item, name, s string) {
	if s != "" {
		it[name] = v.text(s)
	}
}

// putTime sets an attribute to t in milliseconds since 1970.
func (v *values) putTime(it item, name string, t time.Time) {
	if !t.IsZero() {
		it[name] = v.number(t.UnixMilli())
	}
}

// putDuration sets an attribute to d in milliseconds. A shorter d is stored as one
// millisecond, because zero would mean the default.
func (v *values) putDuration(it item, name string, d time.Duration) {
	if d > 0 {
		it[name] = v.number(max(1, d.Milliseconds()))
	}
}

// ceilSeconds returns t in seconds since 1970, rounded up so that an item is not
// deleted early.
func ceilSeconds(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

func isState(code string) bool {
	_, err := driver.ParseState(code)
	return err == nil
}

func isRecovery(name string) bool {
	_, err := driver.ParseRecovery(name)
	return err == nil
}

// shards is the number of partition keys of the index. It never changes, like
// the hash below: if a handler and a reconciler used different values, records
// would stay hidden.
//
// Without shards all due records would be in one partition. A partition handles
// 1,000 write units per second (developer guide, "Burst and adaptive capacity"),
// and an index that throttles also throttles its table.
const shards = 64

// The prefixes of a record's index key: due for reconciliation, or given up.
const (
	duePrefix       = "u#"
	exhaustedPrefix = "x#"
)

// indexKey returns the index's partition key of a record.
func indexKey(pk string, exhausted bool) string {
	prefix := duePrefix
	if exhausted {
		prefix = exhaustedPrefix
	}
	return shardKey(prefix, int(crc32.ChecksumIEEE([]byte(pk))%shards))
}

// shardKey returns the index's partition key of shard n: the prefix and two
// digits, 00 to 63.
func shardKey(prefix string, n int) string {
	return prefix + string([]byte{'0' + byte(n/10), '0' + byte(n%10)})
}

// decode returns the record in an item. Its errors name the invalid attribute and
// never contain a value.
func (l *layout) decode(it item) (*driver.Record, error) {
	d := decoder{kind: "record", item: it}
	d.format()
	d.keep("", it, l.known)
	steps := d.steps()
	r := &driver.Record{
		ID:                l.id(&d),
		Attempt:           int(d.number(attrAttempt, required)),
		Reason:            driver.Reason(d.text(attrReason, optional)),
		LeaseEnd:          d.time(attrLeaseEnd, optional),
		Expires:           d.time(attrExpires, optional),
		Created:           d.time(attrCreated, optional),
		Since:             d.time(attrSettled, optional),
		Encoding:          d.text(attrEncoding, optional),
		Result:            d.bytes(attrResult, optional),
		Chunks:            d.chunks(),
		ResultVersion:     d.text(attrResultVersion, optional),
		Codec:             d.text(attrCodec, optional),
		StepNames:         d.stepNames(),
		Ref:               d.text(attrRef, optional),
		RequestID:         d.text(attrRequestID, optional),
		TraceParent:       d.text(attrTraceParent, optional),
		Steps:             steps,
		OpenSince:         d.time(attrOpenSince, optional),
		Due:               d.time(tabledef.IndexSortKey, optional),
		Exhausted:         strings.HasPrefix(d.text(tabledef.IndexPartitionKey, optional), exhaustedPrefix),
		ReconcileAttempts: int(d.number(attrReconcileAttempts, optional)),

		PredecessorAnswered: d.flag(attrPredecessor),
		Retention:           d.duration(attrRetention),
		UnresolvedRetention: d.duration(attrUnresolved),
	}
	d.fixed(attrOwner, r.Owner[:])
	d.fixed(attrVersion, r.Version[:])
	d.fixed(attrFingerprint, r.Fingerprint[:])
	r.State = d.state()
	r.Announced = r.State == driver.StateInProgress && !r.Exhausted && !r.Due.IsZero() && it[tabledef.IndexPartitionKey] != nil
	var err error
	if r.Recovery, err = driver.ParseRecovery(d.text(attrRecovery, required)); err != nil {
		d.fail(attrRecovery, fromLater)
	}
	d.number(l.ttl, optional) // derived from exp, so its value is not used
	if d.err == nil && r.State == driver.StateInProgress && r.LeaseEnd.IsZero() {
		d.fail(attrLeaseEnd, "is missing")
	}
	if d.err != nil {
		return nil, d.err
	}
	r.SetExtra(d.extra)
	return r, nil
}

// decodeListed returns what an item of the index shows of a record. With an error
// it returns the record's id.
func (l *layout) decodeListed(it item) (driver.Listed, error) {
	d := decoder{kind: "index entry", item: it}
	listed := driver.Listed{
		ID:       l.id(&d),
		Since:    d.time(attrSettled, optional),
		LeaseEnd: d.time(attrLeaseEnd, optional),
		Due:      d.time(tabledef.IndexSortKey, required),
	}
	listed.State = d.state()
	return listed, d.err
}

// id reads the id of a record from its key.
func (l *layout) id(d *decoder) driver.RecordID {
	key := d.text(l.partitionKey, required)
	id, own := strings.CutPrefix(key, l.prefix)
	if !own {
		d.fail(l.partitionKey, "does not begin with the prefix of the store's items")
		return ""
	}
	return driver.RecordID(id)
}

// keep adds the attributes of a step, or of the record under "", that this version
// does not know to those that are written back.
func (d *decoder) keep(step string, it item, known func(name string) bool) {
	for name, value := range it {
		if known(name) {
			continue
		}
		if d.extra == nil {
			d.extra = map[string]map[string]json.RawMessage{}
		}
		if d.extra[step] == nil {
			d.extra[step] = map[string]json.RawMessage{}
		}
		d.extra[step][name] = attributejson.Marshal(value)
	}
}

// putExtra gives an item the attributes that a later version wrote.
func putExtra(it item, extra map[string]json.RawMessage, known func(name string) bool) error {
	for name, data := range extra {
		if known(name) {
			continue
		}
		value, err := attributejson.Unmarshal(data)
		if err != nil {
			return fmt.Errorf("dynamostore: invalid record: attribute %s in Extra: %w", name, err)
		}
		it[name] = value
	}
	return nil
}

// fromLater describes a state or a recovery that this version does not know.
// Decoding fails instead of guessing.
const fromLater = "has a value that this version does not know; if a newer version wrote it, deploy that version here too"

// decoder reads attributes and holds the first error.
type decoder struct {
	kind  string // what the item is, for error texts
	item  item
	extra map[string]map[string]json.RawMessage // of the record, see [driver.Record.Extra]
	err   error
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

// flag reads an attribute that is true, or missing.
func (d *decoder) flag(name string) bool {
	value := d.item[name]
	if v, ok := value.(*types.AttributeValueMemberBOOL); value != nil && (!ok || !v.Value) {
		d.fail(name, "is not true")
	}
	return value != nil
}

func (d *decoder) time(name string, p presence) time.Time {
	if d.item[name] == nil {
		d.missing(name, p)
		return time.Time{}
	}
	return time.UnixMilli(d.number(name, p)).UTC()
}

// state reads the state of a record.
func (d *decoder) state() driver.State {
	s, err := driver.ParseState(d.text(attrState, required))
	if err != nil {
		d.fail(attrState, fromLater)
	}
	return s
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

// The steps of a record are a map from their names to maps with these attributes.
// The last four are missing if zero. The result and its encoding are present if
// the step has finished.
const (
	stepMode     = "m" // how often the step may run
	stepAttempt  = "a" // the attempt that stored this state
	stepAt       = "t" // when that was, in milliseconds since 1970
	stepBy       = "b" // the source of its result
	stepShape    = "s" // of the result's type
	stepEncoding = "e"
	stepResult   = "r"
)

// knownInStep reports whether this version writes the named attribute of a step
// itself.
func knownInStep(name string) bool {
	switch name {
	case stepMode, stepAttempt, stepAt, stepBy, stepShape, stepEncoding, stepResult:
		return true
	}
	return false
}

// steps returns the steps, each with the attributes that a later version had
// written into the step of the same name.
func (v *values) steps(r *driver.Record) (*types.AttributeValueMemberM, error) {
	n := len(r.Steps)
	v.reserve(4*n, n, 2*n) // for each mode, shape, source, encoding; result; attempt, time
	m, whole := make(item, n), make([]types.AttributeValueMemberM, n)
	for i := range r.Steps {
		s := &r.Steps[i]
		mode := s.Mode.Code()
		if _, err := driver.ParseStepMode(mode); err != nil || s.Name == "" || s.Finished != (s.Encoding != "") {
			return nil, errors.New("dynamostore: invalid step: no name, an unknown mode, or a result without an encoding")
		}
		it := item{}
		if err := putExtra(it, r.Extra()[s.Name], knownInStep); err != nil {
			return nil, err
		}
		it[stepMode] = v.text(mode)
		it[stepAttempt] = v.number(int64(s.Attempt))
		v.putTime(it, stepAt, s.At)
		v.putText(it, stepShape, s.Shape)
		if s.By != 0 {
			by := s.By.Code()
			if _, err := driver.ParseStepSource(by); err != nil || !s.Finished {
				return nil, errors.New("dynamostore: invalid step: unknown source, or a source without a result")
			}
			it[stepBy] = v.text(by)
		}
		if s.Finished {
			result := s.Result
			if result == nil { // which would be sent as null
				result = []byte{}
			}
			it[stepEncoding], it[stepResult] = v.text(s.Encoding), v.bytes(result)
		}
		whole[i].Value = it
		m[s.Name] = &whole[i]
	}
	return &types.AttributeValueMemberM{Value: m}, nil
}

// steps reads the steps of a record, in the order of their names.
func (d *decoder) steps() (steps []driver.StepRecord) {
	if d.item[attrSteps] == nil {
		return nil
	}
	m, ok := d.item[attrSteps].(*types.AttributeValueMemberM)
	if !ok {
		d.fail(attrSteps, "is not a map")
		return nil
	}
	for name, value := range m.Value {
		it, ok := value.(*types.AttributeValueMemberM)
		if !ok || name == "" {
			d.fail(attrSteps, "contains a value that is not a step")
			return nil
		}
		inner := decoder{kind: d.kind + "'s step", item: it.Value}
		s := driver.StepRecord{
			Name:     name,
			Finished: it.Value[stepEncoding] != nil,
			Attempt:  int(inner.number(stepAttempt, required)),
			At:       inner.time(stepAt, optional),
			Shape:    inner.text(stepShape, optional),
			Encoding: inner.text(stepEncoding, optional),
			Result:   inner.bytes(stepResult, optional),
		}
		var err error
		if s.Mode, err = driver.ParseStepMode(inner.text(stepMode, required)); err != nil {
			inner.fail(stepMode, fromLater)
		}
		if s.Finished != (s.Result != nil) {
			inner.fail(stepResult, "is present without an encoding, or missing")
		}
		if it.Value[stepBy] != nil {
			if s.By, err = driver.ParseStepSource(inner.text(stepBy, required)); err != nil {
				inner.fail(stepBy, fromLater)
			}
			if !s.Finished {
				inner.fail(stepBy, "is present without a result")
			}
		}
		if d.err == nil {
			d.err = inner.err
		}
		steps = append(steps, s)
		d.keep(name, it.Value, knownInStep)
	}
	slices.SortFunc(steps, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
	return steps
}
