package dynamostore

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// errUndone is the cause of a batch of which DynamoDB did nothing: it reports that
// without an error.
var errUndone = errors.New("the table or one of its partitions is throttled; see its throttling metrics")

// drain sends a batch of size items, and what is left of it, until nothing is
// left. DynamoDB returns the part of a batch that it did not process and
// recommends growing pauses (developer guide, "Batch operations and error
// handling"). It returns a throttling error only if it processed nothing; drain
// handles both in the same way. The pauses start again from the shortest after any
// progress. The number of attempts is limited as in persist, which also retries
// conflicts here.
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
		if err := s.pause(ctx, attempt, "not all of the batch was processed", cause); err != nil {
			return err
		}
	}
}

// isThrottling reports whether err is a throttling error of AWS. The client has
// already retried it, with the few retries that suit a record. A batch is retried
// for longer, because otherwise its result is lost for replays.
func isThrottling(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary
}
