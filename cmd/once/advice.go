package main

import (
	"errors"
	"strings"

	"github.com/aws/smithy-go"
)

// advice returns what to do on this command line about an error of AWS, or "". The
// texts of the store itself are for Go programmers.
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
		return "Check --region, --profile and --endpoint. For tests and local use, create the table with once table create."
	case code == "ValidationException" && operation == "Query":
		return "Check the table's index with once table check, or use --no-index."
	case code == "ValidationException":
		return "Check the table's keys with once table check."
	case strings.HasPrefix(code, "ExpiredToken"), code == "UnrecognizedClientException", code == "InvalidSignatureException":
		return "The credentials were refused: log in again, or use --profile."
	}
	return ""
}
