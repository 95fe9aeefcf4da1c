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

// item is a record as DynamoDB keeps it.
type item = map[string]types.AttributeValue

// extra holds the attributes that a later version wrote and this one does not
// know. It travels in [driver.Record.Extra] and is written back. Records share
// it, so it is never changed.
type extra struct {
	record item            // of the record
	steps  map[string]item // of its steps, by their names
}

// formatVersion is the version of the item's format. What an older version may
// carry along without understanding it needs no new one.
const formatVersion = "1"

// The attributes besides those in table.go. The first eight are always there;
// a reader that misses one fails closed. The others are absent where zero.
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
	attrRetention         = "ret"  // in milliseconds, as the next two
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

// known reports whether this version writes the attribute name itself.
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

// ttlGrace is how long DynamoDB keeps an item after the record expired. The
// record counts as absent from its expiry on; the item stays for those who are
// a clock's difference late and for people who look.
const ttlGrace = time.Hour

// encode returns r as an item. It refuses what decode would refuse, so that a
// mistake shows before it is stored.
func encode(r *driver.Record) (item, error) {
	state, recovery := r.State.Code(), r.Recovery.String()
	switch {
	case r.ID == "":
		return nil, errors.New("dynamostore: the record has no id")
	case !isState(state):
		return nil, errors.New("dynamostore: the record's State is none that exists")
	case !isRecovery(recovery):
		return nil, errors.New("dynamostore: the record's Recovery is none that exists")
	case r.State == driver.StateInProgress && r.LeaseEnd.IsZero():
		return nil, errors.New("dynamostore: the record is in progress and has no LeaseEnd")
	case r.Chunks != (driver.Chunks{}) && (r.Chunks.Count < 1 || r.Chunks.Length < 0):
		return nil, errors.New("dynamostore: the record's Chunks have no Count, or a Length below zero")
	case min(r.Retention, r.UnresolvedRetention) < 0:
		return nil, errors.New("dynamostore: the record has a retention below zero")
	case slices.Contains(r.StepNames, ""):
		return nil, errors.New("dynamostore: a step that the record declares has no name")
	case r.Exhausted && r.Due.IsZero():
		return nil, errors.New("dynamostore: the record is Exhausted and has no Due, so no list would show it")
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

// putDuration sets an attribute to d in milliseconds. A shorter d counts as one:
// zero would mean the default.
func putDuration(it item, name string, d time.Duration) {
	if d > 0 {
		it[name] = number(max(1, d.Milliseconds()))
	}
}

// ceilSeconds returns t in seconds since 1970, rounded up: an item must not go
// before its time.
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
