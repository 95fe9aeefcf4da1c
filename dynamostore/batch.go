package dynamostore

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// errUndone is what DynamoDB does not call an error.
var errUndone = errors.New("the table, or a partition of it, takes no more for now; see its throttling metrics")

// drain sends a batch of that size, and what is left of it, until nothing is.
// DynamoDB does what it can of a batch and hands the rest back; it recommends
// pauses that grow (developer guide, "Batch operations and error handling").
// Only if it can do nothing at all is the throttling an error, which is one and
// the same to us. The pauses begin anew whenever something got through, and end
// as those of persist, which sees to conflicts here too.
func (s *Store) drain(ctx context.Context, size int, send func() (left int, err error)) error {
	for attempt := 1; ; attempt++ {
		left, cause := 0, errUndone
		err := s.persist(ctx, func() (err error) {
			left, err = send()
			return err
		})
		switch {
		case err == nil && left == 0:
			return nil
		case err == nil && left < size:
			size, attempt = left, 1
		case isThrottling(err):
			cause = err
		case err != nil:
			return err
		}
		if err := s.pause(ctx, attempt, "not all of the batch was done", cause); err != nil {
			return err
		}
	}
}

// isThrottling reports whether err is one of the errors by which AWS asks for
// less. The client has retried it, but no longer than suits a record, and here
// the alternative is a result that nobody can replay.
func isThrottling(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary
}
