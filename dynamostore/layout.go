// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/internal/tabledef"
)

// layout is where the items of a store are in its table. A table that a store
// shares with other items has attributes with other names, and often a sort key.
// The items of a store then differ from all others by the prefix of their
// partition keys.
//
// The name of an item is its partition key without the prefix: a record id, the
// key of a chunk, or tabledef.ScanKey.
type layout struct {
	partitionKey, sortKey, ttl string // attributes; sortKey is empty without one
	prefix                     string

	// Made once from the above, because requests use them:
	key       string            // the partition key in expressions
	keyNames  map[string]string // the placeholder in key; nil: key is the name itself
	mayInsert string            // the condition below, for this table
}

const (
	// insertCondition is true if there is no record, or only an expired one. DynamoDB
	// deletes expired items "within a few days" and returns them until then (developer
	// guide, "Using time to live"), so the condition compares the expiry. A record
	// without exp never expires: the comparison is false.
	insertCondition = "attribute_not_exists(" + tabledef.PartitionKey + ") OR " + attrExpires + " <= :now"
	// bookmarkCondition is true if no other call has written the bookmark.
	bookmarkCondition = "attribute_not_exists(" + attrVersion + ") OR " + attrVersion + " = :was"
)

// maxPrefix is the longest prefix in bytes. A sort key has at most 1,024 bytes, and
// the longest name has 337: the key of a chunk.
const maxPrefix = 128

// newLayout returns a layout from its attributes and its prefix. It checks them as
// options of a store.
func newLayout(l layout) (*layout, error) {
	for _, named := range []struct{ option, attribute string }{
		{"PartitionKey", l.partitionKey}, {"SortKey", l.sortKey}, {"TTLAttribute", l.ttl},
	} {
		switch {
		case len(named.attribute) > maxKeyName:
			return nil, fmt.Errorf("dynamostore: Options.%s has %d bytes; DynamoDB accepts %d", named.option, len(named.attribute), maxKeyName)
		case reserved(named.attribute):
			return nil, fmt.Errorf("dynamostore: invalid Options.%s %q: each record has an attribute of that name for something else, so records cannot be in such a table: use another table", named.option, named.attribute)
		}
	}
	if l.partitionKey == l.sortKey || l.partitionKey == l.ttl || l.sortKey == l.ttl {
		return nil, fmt.Errorf("dynamostore: Options.PartitionKey %q, SortKey %q and TTLAttribute %q must differ", l.partitionKey, l.sortKey, l.ttl)
	}
	if l.sortKey != "" && l.prefix == "" {
		return nil, errors.New("dynamostore: Options.SortKey is set without a Prefix: a table with a sort key has other items, and the prefix keeps the keys of records apart from theirs; set Options.Prefix, for example to ONCE#")
	}
	if err := checkPrefix(l.prefix); err != nil {
		return nil, err
	}
	l.key = l.partitionKey
	if l.key != tabledef.PartitionKey { // it may be a reserved word
		l.key, l.keyNames = keyPlaceholder, map[string]string{keyPlaceholder: l.partitionKey}
	}
	named := strings.NewReplacer("("+tabledef.PartitionKey+")", "("+l.key+")")
	l.mayInsert = named.Replace(insertCondition)
	return &l, nil
}

const (
	// maxKeyName is the longest name of a key attribute, in bytes (developer guide,
	// "Constraints in Amazon DynamoDB").
	maxKeyName     = 255
	keyPlaceholder = "#pk"
	ttlPlaceholder = "#ttl" // TTL is a reserved word
)

// checkPrefix checks a prefix. One that ended in a letter could be the beginning of
// a word with which other keys begin.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	printable := !strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' })
	if last := prefix[len(prefix)-1]; len(prefix) > maxPrefix || !printable || unicode.IsLetter(rune(last)) || unicode.IsDigit(rune(last)) {
		return fmt.Errorf("dynamostore: invalid Options.Prefix %q: want 1 to %d printable ASCII characters without spaces, the last of them neither a letter nor a digit, for example ONCE#", prefix, maxPrefix)
	}
	return nil
}

// known reports whether this version writes the named attribute of a record itself.
func (l *layout) known(name string) bool {
	return ofRecords(name) || name == l.partitionKey || name == l.ttl || name != "" && name == l.sortKey
}

// place gives an item the key of that name. The sort key is equal to the partition
// key: with a constant, all items would be in one partition of an index that has
// the sort key as its partition key.
func (l *layout) place(it item, name string) {
	key := text(l.prefix + name)
	it[l.partitionKey] = key
	if l.sortKey != "" {
		it[l.sortKey] = key
	}
}

// keyOf returns the key of the item with that name.
func (l *layout) keyOf(name string) item {
	key := make(item, 2)
	l.place(key, name)
	return key
}

// nameOf returns the name of an item, or "" if it is not an item of the store.
func (l *layout) nameOf(it item) string {
	key, _ := it[l.partitionKey].(*types.AttributeValueMemberS)
	if key == nil {
		return ""
	}
	name, own := strings.CutPrefix(key.Value, l.prefix)
	if !own {
		return ""
	}
	return name
}

// filter limits a list to the items of the store that meet a condition, which may
// be empty. It returns nil if there is nothing to filter.
func (l *layout) filter(condition string, values item) (expression *string, names map[string]string, all item) {
	if l.prefix == "" {
		if condition == "" {
			return nil, nil, values
		}
		return &condition, nil, values
	}
	own := "begins_with(" + l.key + ", :prefix)"
	if condition != "" {
		own += " AND (" + condition + ")"
	}
	all = item{":prefix": text(l.prefix)}
	maps.Copy(all, values)
	return &own, l.keyNames, all
}

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
