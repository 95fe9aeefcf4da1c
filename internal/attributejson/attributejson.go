// SPDX-License-Identifier: Apache-2.0

// Package attributejson converts attributes of DynamoDB to their JSON form, for
// example {"S":"text"}, and back.
package attributejson

import (
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// form is the JSON form of an attribute. One member is set.
type form struct {
	S    *string          `json:",omitempty"`
	N    *string          `json:",omitempty"`
	B    *[]byte          `json:",omitempty"`
	BOOL *bool            `json:",omitempty"`
	NULL *bool            `json:",omitempty"`
	SS   *[]string        `json:",omitempty"`
	NS   *[]string        `json:",omitempty"`
	BS   *[][]byte        `json:",omitempty"`
	L    *[]form          `json:",omitempty"`
	M    *map[string]form `json:",omitempty"`
}

// Marshal returns v as JSON, binary values in base64. A value of a type that this
// version of the SDK does not know is lost: Unmarshal then returns an error.
func Marshal(v types.AttributeValue) json.RawMessage {
	data, err := json.Marshal(formOf(v))
	if err != nil {
		panic(err) // every form encodes
	}
	return data
}

func formOf(v types.AttributeValue) (f form) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		f.S = &v.Value
	case *types.AttributeValueMemberN:
		f.N = &v.Value
	case *types.AttributeValueMemberB:
		f.B = &v.Value
	case *types.AttributeValueMemberBOOL:
		f.BOOL = &v.Value
	case *types.AttributeValueMemberNULL:
		f.NULL = &v.Value
	case *types.AttributeValueMemberSS:
		f.SS = &v.Value
	case *types.AttributeValueMemberNS:
		f.NS = &v.Value
	case *types.AttributeValueMemberBS:
		f.BS = &v.Value
	case *types.AttributeValueMemberL:
		list := make([]form, len(v.Value))
		for i, element := range v.Value {
			list[i] = formOf(element)
		}
		f.L = &list
	case *types.AttributeValueMemberM:
		members := make(map[string]form, len(v.Value))
		for name, member := range v.Value {
			members[name] = formOf(member)
		}
		f.M = &members
	}
	return f
}

// Unmarshal is the inverse of [Marshal]. Its error contains no part of data.
func Unmarshal(data []byte) (types.AttributeValue, error) {
	var f form
	if json.Unmarshal(data, &f) == nil {
		if v := f.value(); v != nil {
			return v, nil
		}
	}
	return nil, errors.New("it is not an attribute in DynamoDB's JSON form")
}

// value returns the attribute, or nil if it has no known type.
func (f *form) value() types.AttributeValue {
	switch {
	case f.S != nil:
		return &types.AttributeValueMemberS{Value: *f.S}
	case f.N != nil:
		return &types.AttributeValueMemberN{Value: *f.N}
	case f.B != nil:
		return &types.AttributeValueMemberB{Value: *f.B}
	case f.BOOL != nil:
		return &types.AttributeValueMemberBOOL{Value: *f.BOOL}
	case f.NULL != nil:
		return &types.AttributeValueMemberNULL{Value: *f.NULL}
	case f.SS != nil:
		return &types.AttributeValueMemberSS{Value: *f.SS}
	case f.NS != nil:
		return &types.AttributeValueMemberNS{Value: *f.NS}
	case f.BS != nil:
		return &types.AttributeValueMemberBS{Value: *f.BS}
	case f.L != nil:
		list := make([]types.AttributeValue, len(*f.L))
		for i, element := range *f.L {
			if list[i] = element.value(); list[i] == nil {
				return nil
			}
		}
		return &types.AttributeValueMemberL{Value: list}
	case f.M != nil:
		members := make(map[string]types.AttributeValue, len(*f.M))
		for name, member := range *f.M {
			if members[name] = member.value(); members[name] == nil {
				return nil
			}
		}
		return &types.AttributeValueMemberM{Value: members}
	}
	return nil
}
