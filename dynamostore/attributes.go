// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/internal/tabledef"
)

// item is a DynamoDB item.
type item = map[string]types.AttributeValue

func text(s string) *types.AttributeValueMemberS { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// The attributes of a record besides the keys of package tabledef. Of the names used in
// expressions only ttl is a reserved word (developer guide, "Reserved words in DynamoDB"),
// so the others need no placeholders. The first seven are always present; a reader
// fails if one is missing. The others are missing if their value is zero.
const (
	attrFormat      = "v"
	attrState       = tabledef.State
	attrRecovery    = "rec"
	attrOwner       = "own"
	attrVersion     = "wid"
	attrAttempt     = "att"
	attrFingerprint = "fp"

	attrReason            = "why"
	attrLeaseEnd          = tabledef.LeaseEnd // required while in progress
	attrExpires           = "exp"
	attrCreated           = "ct"
	attrSettled           = tabledef.Settled
	attrResult            = "res"
	attrEncoding          = "enc"
	attrResultVersion     = "rv"
	attrRetention         = "ret"  // in milliseconds, like the next two
	attrUnresolved        = "uret" // the retention of an unresolved record
	attrCodec             = "cdc"
	attrStepNames         = "sn"
	attrOpenSince         = "os"
	attrPredecessor       = "pa" // true if the predecessor's answer completed the record
	attrChunkCount        = "cn" // with the next two
	attrChunkLength       = "cl"
	attrChunkSum          = "ch"
	attrRef               = "ref"
	attrRequestID         = "rid"
	attrTraceParent       = "tp"
	attrSteps             = "steps"
	attrReconcileAttempts = "rc"
)

// The attributes of the other items of a store, besides v and wid.
const (
	attrPart = "part" // the bytes of a chunk

	attrBegan    = "began" // of the bookmark of a scan, with the next five
	attrEnded    = "ended"
	attrPause    = "pause"
	attrFound    = "found"
	attrReserved = "until"
	attrStarts   = "next"
)

// ofRecords reports whether this version writes the named attribute itself. The
// attributes that a [layout] names are known only to it.
func ofRecords(name string) bool {
	switch name {
	case tabledef.IndexPartitionKey, tabledef.IndexSortKey,
		attrFormat, attrState, attrRecovery, attrOwner, attrVersion, attrAttempt, attrFingerprint,
		attrReason, attrLeaseEnd, attrExpires, attrCreated, attrSettled, attrResult, attrEncoding,
		attrResultVersion, attrRetention, attrUnresolved, attrCodec, attrStepNames, attrOpenSince, attrPredecessor,
		attrChunkCount, attrChunkLength, attrChunkSum, attrRef, attrRequestID, attrTraceParent, attrSteps, attrReconcileAttempts:
		return true
	}
	return false
}

// reserved reports whether items of a store have the named attribute for
// themselves.
func reserved(name string) bool {
	switch name {
	case attrPart, attrBegan, attrEnded, attrPause, attrFound, attrReserved, attrStarts:
		return true
	}
	return ofRecords(name)
}
