// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

// F25: a dump of the table shows neither a key nor a hash that depends on a request
// alone: equal requests cannot be found in it, and a card number cannot be found
// by trying all of them. Every state that a request can leave is in the dump.
func TestDumpShowsNoRequest(t *testing.T) {
	t.Parallel()
	db := dynamotest.New("once")
	guard, err := idempotent.New(newStoreOver(t, db), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	type charge struct {
		Card string `json:"card"`
	}
	const body, scope = `{"card":"4242424242424242"}`, "tenant-acme"
	content, err := idempotent.FingerprintOf(charge{Card: "4242424242424242"})
	if err != nil {
		t.Fatal(err)
	}
	var keys []idempotent.Key
	for i, end := range []error{nil, idempotent.Final("declined", ""), idempotent.NotExecuted(errors.New("busy")), errors.New("no reply")} {
		key := idempotent.Key{Operation: "charge", Scope: scope, ID: fmt.Sprintf("f3b0c1d2-%d", i), Fingerprint: content}
		keys = append(keys, key)
		if _, err := idempotent.Do(t.Context(), guard, key, func(context.Context) (int, error) { return i, end }); !errors.Is(err, end) {
			t.Fatal(err)
		}
	}

	items := itemsOf(t, db)
	if len(items) != len(keys) {
		t.Fatalf("%d items, want %d", len(items), len(keys))
	}
	sum, spaced, raw := sha256.Sum256([]byte(body)), sha256.Sum256([]byte(body+"\n")), idempotent.FingerprintBytes([]byte(body))
	secrets := [][]byte{[]byte(scope), []byte("4242"), content[1:], sum[:], spaced[:], raw[1:]}
	for _, k := range keys {
		secrets = append(secrets, []byte(k.ID))
	}
	dump := dumped(items)
	for _, secret := range secrets {
		for _, form := range [][]byte{secret, []byte(hex.EncodeToString(secret)), []byte(base64.StdEncoding.EncodeToString(secret))} {
			if bytes.Contains(dump, form) {
				t.Errorf("the dump contains %q", form)
			}
		}
	}
	seen := map[string]bool{}
	for _, it := range items {
		fp, ok := it["fp"].(*types.AttributeValueMemberB)
		if !ok || len(fp.Value) != len(content) || seen[string(fp.Value)] {
			t.Errorf("the fingerprint of an item is %v: want one of its own", it["fp"])
			continue
		}
		seen[string(fp.Value)] = true
	}
}

// With a Sealer, a dump of the table shows no result, wherever it is stored. It
// shows what operators need: the operation, the names of steps, and references.
func TestDumpShowsNoSealedResult(t *testing.T) {
	t.Parallel()
	const secret = "4242424242424242"
	db, sealer := dynamotest.New("once"), kit.NewSealer()
	guard, err := idempotent.New(newStoreOver(t, db), sealer.Option, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	send := func(id string, handler func(ctx context.Context) (string, error)) string {
		t.Helper()
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes(nil)}
		value, err := idempotent.Do(t.Context(), guard, key, func(ctx context.Context) (string, error) {
			execution, _ := idempotent.FromContext(ctx)
			if err := execution.SetRef("orders/7"); err != nil {
				t.Error(err)
			}
			return handler(ctx)
		})
		return fmt.Sprint(value, err)
	}
	noise := make([]byte, 1<<20) // more than one item beside the record
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	large := func(context.Context) (string, error) { return secret + base64.StdEncoding.EncodeToString(noise), nil }
	for range 2 {
		if got := send("large", large); len(got) < 1<<20 || !strings.HasPrefix(got, secret) {
			t.Errorf("the large result is %d bytes", len(got))
		}
	}
	send("small", func(context.Context) (string, error) { return secret, nil })
	send("final", func(context.Context) (string, error) { return "", idempotent.Final(secret, secret) })
	send("step", func(ctx context.Context) (string, error) {
		if _, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return secret, nil }); err != nil {
			t.Error(err)
		}
		return "", errors.New("no reply")
	})

	items := itemsOf(t, db)
	if len(items) < 6 {
		t.Fatalf("%d items, want at least 6", len(items))
	}
	dump := dumped(items)
	if bytes.Contains(dump, []byte(secret)) {
		t.Error("the dump contains a result")
	}
	for _, shown := range []string{"charge#", "pay", "orders/7", "json+sealed", "final+sealed"} {
		if !bytes.Contains(dump, []byte(shown)) {
			t.Errorf("the dump does not contain %q", shown)
		}
	}
}

func newStoreOver(t *testing.T, db *dynamotest.DB) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.New(db, "once")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// itemsOf returns all items of the table. A page of a scan ends after 1 MB.
func itemsOf(t *testing.T, db *dynamotest.DB) (items []map[string]types.AttributeValue) {
	t.Helper()
	for pages := dynamodb.NewScanPaginator(db, &dynamodb.ScanInput{TableName: aws.String("once")}); pages.HasMorePages(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, page.Items...)
	}
	return items
}

// dumped returns all names and values of items.
func dumped(items []map[string]types.AttributeValue) (dump []byte) {
	var add func(types.AttributeValue)
	add = func(v types.AttributeValue) {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			dump = append(append(dump, v.Value...), '\n')
		case *types.AttributeValueMemberN:
			dump = append(append(dump, v.Value...), '\n')
		case *types.AttributeValueMemberB:
			dump = append(append(dump, v.Value...), '\n')
		case *types.AttributeValueMemberL:
			for _, e := range v.Value {
				add(e)
			}
		case *types.AttributeValueMemberM:
			for name, e := range v.Value {
				dump = append(append(dump, name...), '\n')
				add(e)
			}
		default:
			dump = fmt.Appendf(dump, "%v\n", v)
		}
	}
	for _, it := range items {
		add(&types.AttributeValueMemberM{Value: it})
	}
	return dump
}
