// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// maxItem is the largest item that DynamoDB stores, names included, in bytes
// (developer guide, "Constraints in Amazon DynamoDB": 400 KB).
const maxItem = 400 << 10

// checkSize returns an error for an item that DynamoDB would refuse, before
// megabytes are uploaded.
func checkSize(it item) error {
	if n := itemSize(it); n > maxItem {
		return fmt.Errorf("dynamostore: the item of the record has %d bytes, DynamoDB holds at most %d: %w", n, maxItem, driver.ErrTooLarge)
	}
	return nil
}

// itemSize returns the size of an item in bytes by the rules of the developer
// guide, "DynamoDB item sizes and formats". The guide gives only an approximate
// size for numbers; itemSize never returns less.
func itemSize(it item) int {
	n := 0
	for name, value := range it {
		n += len(name) + valueSize(value)
	}
	return n
}

// containerSize is the fixed size of a list or a map, and elementSize the overhead
// of each of its elements.
const (
	containerSize = 3
	elementSize   = 1
)

// valueSize also handles types that this version never writes: a later version may
// have written them, and they are written back.
func valueSize(value types.AttributeValue) int {
	n := 0
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		n = len(v.Value)
	case *types.AttributeValueMemberB:
		n = len(v.Value)
	case *types.AttributeValueMemberN:
		n = numberSize(v.Value)
	case *types.AttributeValueMemberSS:
		for _, s := range v.Value {
			n += len(s)
		}
	case *types.AttributeValueMemberBS:
		for _, b := range v.Value {
			n += len(b)
		}
	case *types.AttributeValueMemberNS:
		for _, s := range v.Value {
			n += numberSize(s)
		}
	case *types.AttributeValueMemberL:
		n = containerSize
		for _, e := range v.Value {
			n += elementSize + valueSize(e)
		}
	case *types.AttributeValueMemberM:
		n = containerSize + itemSize(v.Value) + elementSize*len(v.Value)
	default: // a Boolean or a null
		n = 1
	}
	return n
}

// numberSize counts one byte for two digits, one for the exponent and one for the
// sign. It also counts zeroes that DynamoDB trims.
func numberSize(s string) int {
	digits, negative := strings.CutPrefix(s, "-")
	n := (len(digits)+1)/2 + 1
	if negative {
		n++
	}
	return n
}
