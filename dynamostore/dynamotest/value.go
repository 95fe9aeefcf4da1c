// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type item = map[string]types.AttributeValue

// maxItem is the largest item in bytes, and maxDepth the deepest nesting
// (developer guide, "Constraints in Amazon DynamoDB").
const (
	maxItem  = 400 << 10
	maxDepth = 32
)

// cloneItem returns it as DynamoDB would return it, in its own memory. It refuses
// invalid values.
func cloneItem(it item) item {
	if it == nil {
		return nil
	}
	c := make(item, len(it))
	for name, value := range it {
		c[name] = clone(value, 1)
	}
	return c
}

func clone(value types.AttributeValue, depth int) types.AttributeValue {
	if depth > maxDepth+1 {
		refuse("Nesting Levels have exceeded supported limits")
	}
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return &types.AttributeValueMemberS{Value: utf8(v.Value)}
	case *types.AttributeValueMemberN:
		return &types.AttributeValueMemberN{Value: formatNumber(parseNumber(v.Value))}
	case *types.AttributeValueMemberB:
		if v.Value != nil { // the SDK sends nil as null
			return &types.AttributeValueMemberB{Value: append([]byte{}, v.Value...)}
		}
	case *types.AttributeValueMemberBOOL:
		return &types.AttributeValueMemberBOOL{Value: v.Value}
	case *types.AttributeValueMemberNULL:
		if !v.Value {
			refuse("One or more parameter values were invalid: Null attribute value types must have the value of true")
		}
		return &types.AttributeValueMemberNULL{Value: true}
	case *types.AttributeValueMemberSS, *types.AttributeValueMemberNS, *types.AttributeValueMemberBS:
		kind, members := membersOf(v)
		if len(members) == 0 {
			refuse("One or more parameter values were invalid: An %s set may not be empty", kind)
		}
		if slices.Sort(members); len(slices.Compact(slices.Clone(members))) != len(members) {
			refuse("One or more parameter values were invalid: Input collection contains duplicates")
		}
		return setOf(kind, members)
	case *types.AttributeValueMemberL:
		c := make([]types.AttributeValue, len(v.Value))
		for i, e := range v.Value {
			c[i] = clone(e, depth+1)
		}
		return &types.AttributeValueMemberL{Value: c}
	case *types.AttributeValueMemberM:
		c := make(item, len(v.Value))
		for name, e := range v.Value {
			c[name] = clone(e, depth+1)
		}
		return &types.AttributeValueMemberM{Value: c}
	}
	refuse("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
	return nil
}

// utf8 replaces each invalid byte with U+FFFD, as the SDK sends it.
func utf8(s string) string { return string([]rune(s)) }

// membersOf returns the members of a set as text, numbers in their canonical form.
// The kind of another value is "".
func membersOf(value types.AttributeValue) (kind string, members []string) {
	switch v := value.(type) {
	case *types.AttributeValueMemberSS:
		for _, s := range v.Value {
			members = append(members, utf8(s))
		}
		return "SS", members
	case *types.AttributeValueMemberNS:
		for _, n := range v.Value {
			members = append(members, formatNumber(parseNumber(n)))
		}
		return "NS", members
	case *types.AttributeValueMemberBS:
		for _, b := range v.Value {
			members = append(members, string(b))
		}
		return "BS", members
	}
	return "", nil
}

func setOf(kind string, members []string) types.AttributeValue {
	switch kind {
	case "SS":
		return &types.AttributeValueMemberSS{Value: members}
	case "NS":
		return &types.AttributeValueMemberNS{Value: members}
	}
	bs := make([][]byte, len(members))
	for i, m := range members {
		bs[i] = []byte(m)
	}
	return &types.AttributeValueMemberBS{Value: bs}
}

// kindOf returns the type of a value in DynamoDB's notation, or "" for no value.
func kindOf(value types.AttributeValue) string {
	switch value.(type) {
	case *types.AttributeValueMemberS:
		return "S"
	case *types.AttributeValueMemberN:
		return "N"
	case *types.AttributeValueMemberB:
		return "B"
	case *types.AttributeValueMemberBOOL:
		return "BOOL"
	case *types.AttributeValueMemberNULL:
		return "NULL"
	case *types.AttributeValueMemberL:
		return "L"
	case *types.AttributeValueMemberM:
		return "M"
	}
	kind, _ := membersOf(value)
	return kind
}

var numeral = regexp.MustCompile(`^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,4}))?$`)

// The bounds of the size of a number other than zero.
var (
	largest  = new(big.Rat).Sub(parsed("1e126"), parsed("1e88"))
	smallest = parsed("1e-130")
)

func parsed(s string) *big.Rat {
	n, _ := new(big.Rat).SetString(s)
	return n
}

// parseNumber refuses what DynamoDB cannot store.
func parseNumber(s string) *big.Rat {
	if len(s) > 1000 || !numeral.MatchString(s) {
		refuse("The parameter cannot be converted to a numeric value")
	}
	return checkNumber(parsed(s))
}

func checkNumber(n *big.Rat) *big.Rat {
	size := new(big.Rat).Abs(n)
	switch {
	case size.Cmp(largest) > 0:
		refuse("Number overflow. Attempting to store a number with magnitude larger than supported range")
	case n.Sign() != 0 && size.Cmp(smallest) < 0:
		refuse("Number underflow. Attempting to store a number with magnitude smaller than supported range")
	case len(strings.Trim(strings.Replace(formatNumber(size), ".", "", 1), "0")) > 38:
		refuse("Attempting to store more than 38 significant digits in a Number")
	}
	return n
}

// maxPlaces is more decimal places than a valid number has.
const maxPlaces = 200

// formatNumber returns n without superfluous zeros.
func formatNumber(n *big.Rat) string {
	if n.IsInt() {
		return n.Num().String()
	}
	return strings.TrimRight(n.FloatString(maxPlaces), "0")
}

func numberOf(value types.AttributeValue) *big.Rat {
	if n, ok := value.(*types.AttributeValueMemberN); ok {
		return parseNumber(n.Value)
	}
	return nil
}

// compare orders two numbers, strings or binary values. Other values, and values of
// different types, have no order.
func compare(a, b types.AttributeValue) (order int, ok bool) {
	switch a := a.(type) {
	case *types.AttributeValueMemberN:
		if b := numberOf(b); b != nil {
			return numberOf(a).Cmp(b), true
		}
	case *types.AttributeValueMemberS:
		if b, ok := b.(*types.AttributeValueMemberS); ok {
			return cmp.Compare(utf8(a.Value), utf8(b.Value)), true
		}
	case *types.AttributeValueMemberB:
		if b, ok := b.(*types.AttributeValueMemberB); ok {
			return bytes.Compare(a.Value, b.Value), true
		}
	}
	return 0, false
}

// equal reports whether two values have the same type and content.
func equal(a, b types.AttributeValue) bool {
	if order, ok := compare(a, b); ok {
		return order == 0
	}
	if kindOf(a) != kindOf(b) {
		return false
	}
	switch a := a.(type) {
	case *types.AttributeValueMemberBOOL:
		return a.Value == b.(*types.AttributeValueMemberBOOL).Value
	case *types.AttributeValueMemberNULL:
		return true
	case *types.AttributeValueMemberL:
		return slices.EqualFunc(a.Value, b.(*types.AttributeValueMemberL).Value, equal)
	case *types.AttributeValueMemberM:
		other := b.(*types.AttributeValueMemberM).Value
		for name, v := range a.Value {
			if !equal(v, other[name]) {
				return false
			}
		}
		return len(a.Value) == len(other)
	}
	kind, of := membersOf(a)
	_, other := membersOf(b)
	slices.Sort(of)
	slices.Sort(other)
	return kind != "" && slices.Equal(of, other)
}

// sizeOf returns the size of an item in bytes (developer guide, "DynamoDB item
// sizes and formats"). The guide gives only an approximate size for numbers.
func sizeOf(it item) int {
	n := 0
	for name, value := range it {
		n += len(name) + valueSize(value)
	}
	return n
}

func valueSize(value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return numberSize(v.Value)
	case *types.AttributeValueMemberL:
		n := 3
		for _, e := range v.Value {
			n += 1 + valueSize(e)
		}
		return n
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + sizeOf(v.Value)
	}
	kind, members := membersOf(value)
	if kind == "" {
		return 1 // a Boolean or a null
	}
	n := 0
	for _, m := range members {
		if kind == "NS" {
			n += numberSize(m)
		} else {
			n += len(m)
		}
	}
	return n
}

func numberSize(s string) int {
	digits := strings.Trim(strings.Replace(strings.TrimPrefix(s, "-"), ".", "", 1), "0")
	n := (len(digits)+1)/2 + 1
	if strings.HasPrefix(s, "-") {
		n++
	}
	return n
}

// encodeKey returns a text that is the same for equal key values, and different for
// different ones.
func encodeKey(values ...types.AttributeValue) string {
	text := ""
	for _, value := range values {
		s := ""
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			s = utf8(v.Value)
		case *types.AttributeValueMemberB:
			s = string(v.Value)
		case *types.AttributeValueMemberN:
			s = formatNumber(parseNumber(v.Value))
		}
		text += fmt.Sprintf("%s%s:%s", kindOf(value), strconv.Itoa(len(s)), s)
	}
	return text
}
