package dynamostore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent/driver"
)

// explain turns what the SDK returned for an operation into an error that says
// what to do. It keeps the cause for errors.As. Neither has a key or a result
// in it.
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
		return fmt.Errorf("%w; has the table the index %q? Store.Check says, and Store.WithoutIndex does without", err, IndexName)
	case code == "ValidationException":
		return fmt.Errorf("%w; Store.Check says whether the table's keys are the right ones", err)
	case code == "ResourceNotFoundException":
		return fmt.Errorf("%w; there is no such table for this account, region and endpoint: correct those, or create it (Store.CreateTable, or your infrastructure)", err)
	case code == "AccessDeniedException":
		return fmt.Errorf("%w; allow dynamodb:%s on the table", err, operation)
	}
	return err
}

// isItemSize recognises the refusal of an item that is too large, which has no
// code of its own: "Item size has exceeded the maximum allowed size", and with
// an index "Item size to update has exceeded …".
func isItemSize(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "item size") && strings.Contains(message, "exceeded")
}
