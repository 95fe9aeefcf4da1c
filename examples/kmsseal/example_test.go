// SPDX-License-Identifier: Apache-2.0

package kmsseal_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/kmsseal"
	"github.com/once-lambda/once/idempotent"
)

// newGuard returns a guard over the table of the environment that seals its results.
func newGuard(ctx context.Context, cfg aws.Config) (*idempotent.Guard, error) {
	store, err := dynamostore.Open(ctx, func(o *dynamostore.Options) { o.Client = dynamostore.NewClient(cfg) })
	if err != nil {
		return nil, err
	}
	sealer, err := kmsseal.New(kms.NewFromConfig(cfg), "alias/once-results")
	if err != nil {
		return nil, err
	}
	return idempotent.New(store, func(o *idempotent.Options) { o.Seal = sealer })
}

// A guard is made without a call to AWS. It seals a result before it stores it.
func TestNewGuard(t *testing.T) {
	t.Setenv("ONCE_TABLE", "once")
	var calls []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), "secret") {
			t.Errorf("AWS got %s, %v", body, err)
		}
		calls = append(calls, strings.SplitAfter(r.Header.Get("X-Amz-Target"), ".")[1])
		fmt.Fprintf(w, `{"Plaintext":%q,"CiphertextBlob":"AAAA"}`, base64.StdEncoding.EncodeToString(make([]byte, 32)))
	}))
	defer server.Close()
	identity := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "key"}, nil
	})
	g, err := newGuard(t.Context(), aws.Config{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: identity})
	if err != nil || len(calls) != 0 {
		t.Fatalf("got %v, after the calls %q", err, calls)
	}
	key := idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: "o-1", Fingerprint: idempotent.FingerprintBytes(nil)}
	result, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "secret", nil })
	if result != "secret" || err != nil || !slices.Equal(calls, []string{"PutItem", "GenerateDataKey", "PutItem"}) {
		t.Errorf("got %q, %v, after the calls %q", result, err, calls)
	}
}
