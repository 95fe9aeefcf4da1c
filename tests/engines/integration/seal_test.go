// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/examples/kmsseal"
	"github.com/once-lambda/once/idempotent"
)

// The example of a Sealer works with KMS and its client: results are sealed under
// the key that the alias names, and open after the alias names another one. A key
// that is disabled can be enabled again, so a retry is asked to come back.
func TestSealWithKMS(t *testing.T) {
	t.Parallel()
	client, store := kms.NewFromConfig(cloud.cfg), cloud.store(t)
	alias := "alias/once-" + strings.ToLower(rand.Text())
	newKMSKey := func() (id string) {
		t.Helper()
		made, err := client.CreateKey(t.Context(), &kms.CreateKeyInput{})
		if err != nil {
			t.Fatal(err)
		}
		return *made.KeyMetadata.KeyId // which is a part of its ARN
	}
	first, second := newKMSKey(), newKMSKey()
	if _, err := client.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: &alias, TargetKeyId: &first}); err != nil {
		t.Fatal(err)
	}

	keys := []idempotent.Key{newKey(), newKey()}
	// send makes a request as a separate process: it holds no data key.
	send := func(i int, runs bool) error {
		t.Helper()
		sealer, err := kmsseal.New(client, alias)
		if err != nil {
			t.Fatal(err)
		}
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Seal = sealer })
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Repeat("token ", 2_000)
		ran := false
		got, err := idempotent.Do(t.Context(), guard, keys[i], func(context.Context) (string, error) {
			ran = true
			return want, nil
		})
		if ran != runs || err == nil && got != want {
			t.Errorf("request %d: ran: %t, got %d bytes, %v", i, ran, len(got), err)
		}
		return err
	}
	sealedUnder := func(i int, id string) {
		t.Helper()
		r, err := store.Get(t.Context(), keys[i].RecordID())
		if err != nil || r.Encoding != "json+br+sealed" || !bytes.Contains(r.Result, []byte(id)) {
			t.Errorf("request %d is stored as %q, not under %s (%v)", i, r.Encoding, id, err)
		}
	}

	if err := send(0, true); err != nil {
		t.Fatal(err)
	}
	sealedUnder(0, first)
	if _, err := client.UpdateAlias(t.Context(), &kms.UpdateAliasInput{AliasName: &alias, TargetKeyId: &second}); err != nil {
		t.Fatal(err)
	}
	if err := send(1, true); err != nil {
		t.Fatal(err)
	}
	sealedUnder(1, second)
	for i := range keys {
		if err := send(i, false); err != nil {
			t.Errorf("a replay of request %d: %v", i, err)
		}
	}

	if _, err := client.DisableKey(t.Context(), &kms.DisableKeyInput{KeyId: aws.String(first)}); err != nil {
		t.Fatal(err)
	}
	if err := send(0, false); !errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("after its key was disabled: got error %v, want StoreError", err)
	}
	if err := send(1, false); err != nil {
		t.Errorf("under the other key: %v", err)
	}
}
