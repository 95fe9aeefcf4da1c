package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

func newTable(t *testing.T, db database) (*dynamostore.Store, string) {
	t.Helper()
	name := "once-" + strings.ToLower(rand.Text())
	s, err := dynamostore.New(db.client(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s, name
}

// A missing table: every call returns an error that names it and says what to
// do, the handler is not called and nothing is written.
func TestMissingTable(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		s, name := newTable(t, db)
		g, err := idempotent.New(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = idempotent.Do(t.Context(), g, newKey(), func(context.Context) (int, error) {
			t.Error("the handler was entered")
			return 0, nil
		})
		for _, err := range []error{err, s.Check(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "CreateTable") {
				t.Errorf("got error %v, want one that names the table and CreateTable", err)
			}
		}
		if !errors.As(err, new(*idempotent.StoreError)) {
			t.Errorf("got error %v, want StoreError", err)
		}
	})
}

// A table with another schema: Check lists the differences.
func TestWrongSchema(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		s, name := newTable(t, db)
		_, err := db.client().CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName:   &name,
			BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{
				{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS},
				{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
			},
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash},
				{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var schema *dynamostore.SchemaError
		if err := s.Check(t.Context()); !errors.As(err, &schema) || len(schema.Problems) < 3 {
			t.Fatalf("got error %v, want one for the key, the time to live and the index", err)
		}
		for _, word := range []string{"pk", "ttl", "recovery"} {
			if !strings.Contains(schema.Error(), word) {
				t.Errorf("the error does not name %q: %v", word, schema)
			}
		}
		if err := s.CreateTable(t.Context()); !errors.As(err, &schema) {
			t.Errorf("CreateTable accepted the table: %v", err)
		}
		r := driver.Record{ID: newKey().RecordID(), State: driver.StateUnknown}
		if _, err := s.Insert(t.Context(), r, r.Created); err == nil || !strings.Contains(err.Error(), "Check") {
			t.Errorf("Insert: got error %v, want one that names Check", err)
		}
	})
}

// Several processes may create the table at once.
func TestCreateTableTogether(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		s, _ := newTable(t, db)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := s.CreateTable(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
