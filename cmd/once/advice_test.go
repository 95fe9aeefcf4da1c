package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/smithy-go"
)

func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ operation, code, says string }{
		{"Query", "ValidationException", "--no-index"},
		{"PutItem", "ValidationException", "once table check"},
		{"Scan", "ResourceNotFoundException", "once table create"},
		{"Scan", "ExpiredTokenException", "log in again"},
		{"Scan", "UnrecognizedClientException", "log in again"},
		{"Scan", "AccessDeniedException", ""}, // the store's error names the permission
	} {
		err := fmt.Errorf("dynamostore: %w", &smithy.OperationError{OperationName: row.operation, Err: &smithy.GenericAPIError{Code: row.code}})
		if got := advice(err); row.says == "" && got != "" || !strings.Contains(got, row.says) {
			t.Errorf("%s, %s: got %q, want %q", row.operation, row.code, got, row.says)
		}
	}
	if got := advice(errors.New("any")); got != "" {
		t.Errorf("got %q", got)
	}
}
