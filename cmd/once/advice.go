package main

import (
	"errors"
	"strings"

	"github.com/aws/smithy-go"
)

// advice says in terms of this command line what to do about what AWS said, or
// nothing. What the store itself says is for who writes Go.
func advice(err error) string {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	operation := ""
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		operation = op.OperationName
	}
	switch code := api.ErrorCode(); {
	case code == "ResourceNotFoundException":
		return "Is it the right --region, --profile and --endpoint? once table create makes a table for tests and local use."
	case code == "ValidationException" && operation == "Query":
		return "once table check says whether the table has its index; --no-index does without."
	case code == "ValidationException":
		return "once table check says whether it is one of our tables."
	case strings.HasPrefix(code, "ExpiredToken"), code == "UnrecognizedClientException", code == "InvalidSignatureException":
		return "The credentials are refused; log in again, or say --profile."
	}
	return ""
}
