package dynamostore

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The expected sizes were counted by hand with the rules of the developer guide.
func TestItemSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		value types.AttributeValue
		want  int
	}{
		{"S", text("ü"), 2},
		{"empty S", text(""), 0},
		{"B", &types.AttributeValueMemberB{Value: make([]byte, 7)}, 7},
		{"N of one digit", number(7), 2},
		{"N of two digits", number(12), 2},
		{"N of three digits", number(123), 3},
		{"N below zero", number(-12), 3},
		{"BOOL", &types.AttributeValueMemberBOOL{Value: true}, 1},
		{"NULL", &types.AttributeValueMemberNULL{Value: true}, 1},
		{"SS", &types.AttributeValueMemberSS{Value: []string{"ab", "c"}}, 3},
		{"BS", &types.AttributeValueMemberBS{Value: [][]byte{{1, 2}, {3}}}, 3},
		{"NS", &types.AttributeValueMemberNS{Value: []string{"1", "123"}}, 5},
		{"empty L", &types.AttributeValueMemberL{}, 3},
		{"L", &types.AttributeValueMemberL{Value: []types.AttributeValue{text("ab"), number(1)}}, 3 + (1 + 2) + (1 + 2)},
		{"empty M", &types.AttributeValueMemberM{}, 3},
		{"M", &types.AttributeValueMemberM{Value: item{"k": text("ab"), "kk": number(1)}}, 3 + (1 + 1 + 2) + (1 + 2 + 2)},
	} {
		if got := itemSize(item{"name": tt.value}); got != 4+tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, 4+tt.want)
		}
	}
}
