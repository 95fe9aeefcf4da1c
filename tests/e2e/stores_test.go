package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/tests/engine"
)

// onStores runs f with the environment for the embedded store and, as two more
// subtests, for DynamoDB.
func onStores(t *testing.T, f func(t *testing.T, env []string)) {
	t.Helper()
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		f(t, nil)
	})
	t.Run("DynamoDB", func(t *testing.T) {
		t.Parallel()
		f(t, append(dynamoEnv(t, tableName()), "ONCE_CREATE_TABLE=1"))
	})
}

func tableName() string { return "once-" + strings.ToLower(rand.Text()) }

// dynamoEnv returns the environment for a table on the engine of this test run.
func dynamoEnv(t *testing.T, table string) []string {
	t.Helper()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"ONCE_TABLE=" + table, "AWS_ENDPOINT_URL=" + endpoint, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// refused starts the example and checks that it ends with an error.
func refused(t *testing.T, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = append(append(os.Environ(), "PORT=0"), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || ctx.Err() != nil {
		t.Fatalf("the example ended with %v (%v), want an error\n%s", err, ctx.Err(), &stderr)
	}
	return stderr.String()
}

func wantSays(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the error does not contain %q:\n%s", w, text)
		}
	}
	if strings.Contains(text, "goroutine ") {
		t.Errorf("the error is a stack trace:\n%s", text)
	}
}

func TestMissingTable(t *testing.T) {
	t.Parallel()
	table := tableName()
	says := refused(t, append(dynamoEnv(t, table), "DATA="+t.TempDir())...)
	wantSays(t, says, table, "ONCE_CREATE_TABLE")
}

func TestWrongTableSchema(t *testing.T) {
	t.Parallel()
	table := tableName()
	env := dynamoEnv(t, table)
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	_, err = dynamostore.NewClient(engine.Config(endpoint)).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            &table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSays(t, refused(t, append(env, "DATA="+t.TempDir())...), table, "pk", "ttl")
}

// A store file that cannot be read is not changed.
func TestUnreadableStoreFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "once.db")
	damaged := bytes.Repeat([]byte("no database\n"), 1000)
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	wantSays(t, refused(t, "DATA="+dir), file)
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, damaged) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// Two processes over one file: the second one's error names the file.
func TestStoreFileIsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir)
	wantSays(t, refused(t, "DATA="+dir), filepath.Join(dir, "once.db"), "process")
}
