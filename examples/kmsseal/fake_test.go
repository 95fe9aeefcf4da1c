// SPDX-License-Identifier: Apache-2.0

package kmsseal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// fakeKMS is KMS in memory. It does not encrypt data keys, and remembers them.
type fakeKMS struct {
	t testing.TB

	mu        sync.Mutex
	aliases   map[string]string // ARN of the key
	keys      map[string]state  // by ARN
	data      map[string][]byte // data keys, by what the caller gets
	generated int
	decrypted int
	fail      error                                    // of the next call
	during    func(context.Context, map[string]string) // called within each call
}

type state uint8

const (
	enabled state = iota + 1
	disabled
	deleted
)

const (
	alias  = "alias/once-results"
	oldKey = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	newKey = "arn:aws:kms:us-east-1:111122223333:key/0987dcba-09fe-87dc-65ba-ab0987654321"
)

func newFakeKMS(t testing.TB) *fakeKMS {
	return &fakeKMS{
		t: t, aliases: map[string]string{alias: oldKey},
		keys: map[string]state{oldKey: enabled, newKey: enabled}, data: map[string][]byte{},
	}
}

// blob is what the fake returns as an encrypted data key.
type blob struct {
	Key     string
	Context map[string]string
	Secret  string
}

// begin returns the ARN of the key, or the error of the call.
func (f *fakeKMS) begin(ctx context.Context, id string, bound map[string]string) (string, error) {
	if f.during != nil {
		f.during(ctx, bound)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail; err != nil {
		f.fail = nil
		return "", err
	}
	arn := id
	if of := f.aliases[id]; of != "" {
		arn = of
	}
	switch f.keys[arn] {
	case enabled:
		return arn, ctx.Err()
	case disabled:
		return "", &types.DisabledException{Message: aws.String(arn + " is disabled.")}
	case deleted:
	}
	return "", &types.NotFoundException{Message: aws.String("Key '" + arn + "' does not exist")}
}

func (f *fakeKMS) GenerateDataKey(ctx context.Context, in *kms.GenerateDataKeyInput, _ ...func(*kms.Options)) (*kms.GenerateDataKeyOutput, error) {
	if in.KeySpec != types.DataKeySpecAes256 || in.NumberOfBytes != nil {
		f.t.Errorf("a data key of %q and %v bytes", in.KeySpec, in.NumberOfBytes)
	}
	arn, err := f.begin(ctx, aws.ToString(in.KeyId), in.EncryptionContext)
	if err != nil {
		return nil, err
	}
	name, err := json.Marshal(blob{arn, in.EncryptionContext, rand.Text()})
	if err != nil {
		return nil, err
	}
	plain := make([]byte, 32)
	rand.Read(plain)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generated++
	f.data[string(name)] = bytes.Clone(plain)
	return &kms.GenerateDataKeyOutput{KeyId: aws.String(arn), CiphertextBlob: name, Plaintext: plain}, nil
}

func (f *fakeKMS) Decrypt(ctx context.Context, in *kms.DecryptInput, _ ...func(*kms.Options)) (*kms.DecryptOutput, error) {
	arn, err := f.begin(ctx, aws.ToString(in.KeyId), in.EncryptionContext)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decrypted++
	plain := f.data[string(in.CiphertextBlob)]
	var made blob
	if err := json.Unmarshal(in.CiphertextBlob, &made); plain == nil || err != nil || !maps.Equal(made.Context, in.EncryptionContext) {
		return nil, &types.InvalidCiphertextException{}
	}
	if made.Key != arn {
		return nil, &types.IncorrectKeyException{Message: aws.String("The key ID in the request does not identify a CMK that can perform this operation.")}
	}
	return &kms.DecryptOutput{KeyId: aws.String(arn), Plaintext: bytes.Clone(plain), EncryptionAlgorithm: types.EncryptionAlgorithmSpecSymmetricDefault}, nil
}

// wantCalls checks how many data keys were made and decrypted.
func (f *fakeKMS) wantCalls(t testing.TB, generated, decrypted int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generated != generated || f.decrypted != decrypted {
		t.Errorf("KMS made %d data keys and decrypted %d, want %d and %d", f.generated, f.decrypted, generated, decrypted)
	}
}

// String keeps data keys out of logs.
func (f *fakeKMS) String() string { return fmt.Sprintf("fake KMS with %d keys", len(f.keys)) }
