package dynamostore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent/driver"
)

// explain adds to the SDK's error of an operation what to do about it. The cause
// stays available to errors.As. Neither contains a key or a result.
func (s *Store) explain(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dynamostore: %s on table %q: %w", operation, s.table, advise(operation, err))
}

// advise adds to err what to do about it.
func advise(operation string, err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return err
	}
	switch code := api.ErrorCode(); {
	case code == "ValidationException" && isItemSize(api.ErrorMessage()):
		return fmt.Errorf("%w: %w", driver.ErrTooLarge, err)
	case code == "ValidationException" && operation == "Query":
		return fmt.Errorf("%w; check that the table has the index %q with Store.Check, or work without it with Store.WithoutIndex", err, IndexName)
	case code == "ValidationException":
		return fmt.Errorf("%w; check the table's keys with Store.Check", err)
	case code == "ResourceNotFoundException":
		return fmt.Errorf("%w; the table does not exist in this account, region and endpoint: correct them, or create it (Store.CreateTable, or your infrastructure code)", err)
	case code == "AccessDeniedException":
		return fmt.Errorf("%w; allow dynamodb:%s on the table", err, operation)
	}
	return err
}

// isItemSize recognises the refusal of an item that is too large. DynamoDB has no
// code for it, only messages: "Item size has exceeded the maximum allowed size",
// and with an index "Item size to update has exceeded …".
func isItemSize(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "item size") && strings.Contains(message, "exceeded")
}
