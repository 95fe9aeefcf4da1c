package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	// createPatience limits the wait for a table that is being created. DynamoDB
	// takes about ten seconds; DynamoDB Local takes no time.
	createPatience = 3 * time.Minute
	// ttlPatience is how long CreateTable waits for another process to switch time
	// to live on.
	ttlPatience = 5 * time.Second
	// The pauses between two looks at the table: pollBase, then doubled up to
	// pollMax.
	pollBase = 50 * time.Millisecond
	pollMax  = time.Second
)

// CreateTable creates the table with its index and on-demand billing, waits until
// it is ACTIVE and switches its time to live on. It is for tests and local use. In
// production create the table with infrastructure code, where backups, deletion
// protection and encryption are decided.
//
// An existing table is checked and never changed. Several processes may call
// CreateTable at the same time: one creates the table, and all return when it can
// be used. The wait ends with the context, and after three minutes.
//
// It needs dynamodb:CreateTable and dynamodb:UpdateTimeToLive and the permissions
// of [Store.Check]. The client given to [New] has to be a [TableCreator].
func (s *Store) CreateTable(ctx context.Context) error {
	client, ok := s.client.(TableCreator)
	if !ok {
		return fmt.Errorf("dynamostore: CreateTable needs a client that can create and describe tables; %T cannot", s.client)
	}
	created, err := s.createIfMissing(ctx, client)
	if err != nil {
		return err
	}
	if err := s.waitActive(ctx, client); err != nil {
		return err
	}
	if created {
		_, err = client.UpdateTimeToLive(ctx, ttlInput(s.table))
		err = s.explain("UpdateTimeToLive", err)
	}
	if checked := s.checkSoon(ctx); checked != nil {
		return errors.Join(err, checked)
	}
	return nil // err can be set here: another process had switched it on
}

// createIfMissing creates the table unless it exists, and reports whether this
// call created it.
func (s *Store) createIfMissing(ctx context.Context, client TableCreator) (created bool, err error) {
	if _, err := s.describe(ctx, client); !isMissing(err) {
		return false, s.explain("DescribeTable", err)
	}
	_, err = client.CreateTable(ctx, tableInput(s.table))
	if _, ok := errors.AsType[*types.ResourceInUseException](err); ok {
		return false, nil // another process was faster
	}
	return err == nil, s.explain("CreateTable", err)
}

// isMissing reports whether err means that the table does not exist. DescribeTable
// also returns it for a moment after the creation (API reference, DescribeTable).
func isMissing(err error) bool {
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	return ok
}

// waitActive waits until the table can be read and written.
func (s *Store) waitActive(ctx context.Context, client TableDescriber) error {
	return poll(ctx, createPatience, func() (bool, error) {
		table, err := s.describe(ctx, client)
		switch {
		case isMissing(err):
			return false, s.explain("DescribeTable", err)
		case err != nil:
			return true, s.explain("DescribeTable", err)
		case table.TableStatus == types.TableStatusCreating:
			return false, s.schemaError(tableProblems(table))
		default:
			return true, nil // Check reports an unusable state
		}
	})
}

// checkSoon checks the table. If only the time to live is wrong, it gives the
// process that created the table some time to switch it on.
func (s *Store) checkSoon(ctx context.Context) error {
	return poll(ctx, ttlPatience, func() (bool, error) {
		err := s.Check(ctx)
		schema, ok := errors.AsType[*SchemaError](err)
		soon := ok && len(schema.Problems) == 1 && errors.Is(err, errTTLOff)
		return !soon, err
	})
}

// poll calls look until it is done, or patience or the context ends. It returns
// the last error of look, joined with the context's error if that ended.
func poll(ctx context.Context, patience time.Duration, look func() (done bool, err error)) error {
	end := time.Now().Add(patience)
	for i := 0; ; i++ {
		done, err := look()
		delay := backoff(pollBase, pollMax, i)
		if done || time.Until(end) < delay {
			return err
		}
		if cause := sleep(ctx, delay); cause != nil {
			return fmt.Errorf("%w (%w)", err, cause)
		}
	}
}
