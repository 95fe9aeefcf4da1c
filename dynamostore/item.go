package dynamostore

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// item is a record as a DynamoDB item.
type item = map[string]types.AttributeValue

// extra holds the attributes that a later version wrote and this one does not
// know. It is in [driver.Record.Extra] and is written back. Records share it, so
// it is never modified.
type extra struct {
	record item            // of the record
	steps  map[string]item // of its steps, by name
}

// formatVersion is the version of the item's format. An attribute that older
// versions may copy without understanding it does not need a new format version.
const formatVersion = "1"

// The attributes besides those in table.go. The first eight are always present; a
// reader fails if one is missing. The others are missing if their value is zero.
const (
	attrFormat      = "v"
	attrState       = "st"
	attrRecovery    = "rec"
	attrOwner       = "own"
	attrVersion     = "wid"
	attrAttempt     = "att"
	attrFingerprint = "fp"

	attrReason            = "why"
	attrLeaseEnd          = "lease" // required while in progress
	attrExpires           = "exp"
	attrCreated           = "ct"
	attrSettled           = "dt"
	attrResult            = "res"
	attrEncoding          = "enc"
	attrResultVersion     = "rv"
	attrRetention         = "ret"  // in milliseconds, like the next two
	attrUnresolved        = "uret" // the retention of an unresolved record
	attrCodec             = "cdc"
	attrStepNames         = "sn"
	attrOpenSince         = "os"
	attrChunkCount        = "cn" // with the next two
	attrChunkLength       = "cl"
	attrChunkSum          = "ch"
	attrRef               = "ref"
	attrRequestID         = "rid"
	attrSteps             = "steps"
	attrReconcileAttempts = "rc"
)

// attributeCount is how many attributes this version knows.
const attributeCount = 31

// known reports whether this version writes the named attribute itself.
func known(name string) bool {
	switch name {
	case PartitionKey, TTLAttribute, IndexPartitionKey, IndexSortKey,
		attrFormat, attrState, attrRecovery, attrOwner, attrVersion, attrAttempt, attrFingerprint,
		attrReason, attrLeaseEnd, attrExpires, attrCreated, attrSettled, attrResult, attrEncoding,
		attrResultVersion, attrRetention, attrUnresolved, attrCodec, attrStepNames, attrOpenSince,
		attrChunkCount, attrChunkLength, attrChunkSum, attrRef, attrRequestID, attrSteps, attrReconcileAttempts:
		return true
	}
	return false
}

// ttlGrace is how long after the record's expiry DynamoDB may delete the item. The
// record counts as missing from its expiry on. The item stays for callers whose
// clock is slow and for operators who look at it.
const ttlGrace = time.Hour

// encode returns r as an item. It refuses what decode would refuse, so that an
// invalid record is not stored.
func encode(r *driver.Record) (item, error) {
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
	}

	carried, _ := r.Extra.(extra)
	it := make(item, attributeCount+len(carried.record))
	maps.Copy(it, carried.record)
	it[PartitionKey] = text(string(r.ID))
	it[attrFormat] = &types.AttributeValueMemberN{Value: formatVersion}
	it[attrState] = text(state)
	it[attrRecovery] = text(recovery)
	it[attrOwner] = &types.AttributeValueMemberB{Value: r.Owner[:]}
	it[attrVersion] = &types.AttributeValueMemberB{Value: r.Version[:]}
	it[attrAttempt] = number(int64(r.Attempt))
	it[attrFingerprint] = &types.AttributeValueMemberB{Value: r.Fingerprint[:]}

	putText(it, attrReason, string(r.Reason))
	putText(it, attrEncoding, r.Encoding)
	putText(it, attrResultVersion, r.ResultVersion)
	putDuration(it, attrRetention, r.Retention)
	putDuration(it, attrUnresolved, r.UnresolvedRetention)
	putText(it, attrCodec, r.Codec)
	putText(it, attrRef, r.Ref)
	putText(it, attrRequestID, r.RequestID)
	putTime(it, attrLeaseEnd, r.LeaseEnd)
	putTime(it, attrExpires, r.Expires)
	putTime(it, attrCreated, r.Created)
	putTime(it, attrSettled, r.Settled)
	putTime(it, attrOpenSince, r.OpenSince)
	if !r.Expires.IsZero() {
		it[TTLAttribute] = number(ceilSeconds(r.Expires.Add(ttlGrace)))
	}
	if r.Result != nil {
		it[attrResult] = &types.AttributeValueMemberB{Value: r.Result}
	}
	if c := &r.Chunks; c.Count != 0 {
		it[attrChunkCount] = number(int64(c.Count))
		it[attrChunkLength] = number(int64(c.Length))
		it[attrChunkSum] = &types.AttributeValueMemberB{Value: c.Sum[:]}
	}
	if len(r.StepNames) > 0 {
		names := make([]types.AttributeValue, len(r.StepNames))
		for i, name := range r.StepNames {
			names[i] = text(name)
		}
		it[attrStepNames] = &types.AttributeValueMemberL{Value: names}
	}
	if len(r.Steps) > 0 {
		steps, err := encodeSteps(r.Steps, carried.steps)
		if err != nil {
			return nil, err
		}
		it[attrSteps] = steps
	}
	if r.ReconcileAttempts != 0 {
		it[attrReconcileAttempts] = number(int64(r.ReconcileAttempts))
	}
	if !r.Due.IsZero() {
		it[IndexPartitionKey] = text(indexKey(string(r.ID), r.Exhausted))
		it[IndexSortKey] = number(r.Due.UnixMilli())
	}
	return it, nil
}

func text(s string) *types.AttributeValueMemberS { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func putText(it item, name, s string) {
	if s != "" {
		it[name] = text(s)
	}
}

// putTime sets an attribute to t in milliseconds since 1970.
func putTime(it item, name string, t time.Time) {
	if !t.IsZero() {
		it[name] = number(t.UnixMilli())
	}
}

// putDuration sets an attribute to d in milliseconds. A shorter d is stored as one
// millisecond, because zero would mean the default.
func putDuration(it item, name string, d time.Duration) {
	if d > 0 {
		it[name] = number(max(1, d.Milliseconds()))
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
