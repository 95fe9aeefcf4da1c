// SPDX-License-Identifier: Apache-2.0

package kmsseal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/kmsseal"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
)

// clock is a clock that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newSealer(t testing.TB, f *fakeKMS, c *clock, optFns ...func(*kmsseal.Options)) *kmsseal.Sealer {
	t.Helper()
	s, err := kmsseal.New(f, alias, append([]func(*kmsseal.Options){func(o *kmsseal.Options) { o.Now = c.now }}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSeal(t testing.TB, s *kmsseal.Sealer, plain, bound string) []byte {
	t.Helper()
	sealed, err := s.Seal(t.Context(), []byte(plain), []byte(bound))
	if err != nil || bytes.Contains(sealed, []byte(plain)) {
		t.Fatalf("sealed as %q, %v", sealed, err)
	}
	return sealed
}

func wantOpen(t testing.TB, s *kmsseal.Sealer, sealed []byte, bound, want string) {
	t.Helper()
	if got, err := s.Open(t.Context(), sealed, []byte(bound)); err != nil || string(got) != want {
		t.Errorf("opened as %q, %v, want %q", got, err, want)
	}
}

// Sealed bytes open where they belong, also in another process.
func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	s := newSealer(t, f, c)
	plain := "token 9f8e7d6c5b4a"
	a, b := mustSeal(t, s, plain, "record 1"), mustSeal(t, s, plain, "record 1")
	if bytes.Equal(a, b) {
		t.Error("equal results have equal sealed bytes")
	}
	wantOpen(t, s, a, "record 1", plain)
	wantOpen(t, s, b, "record 1", plain)
	f.wantCalls(t, 1, 0)

	other := newSealer(t, f, c)
	for range 3 {
		wantOpen(t, other, a, "record 1", plain)
	}
	f.wantCalls(t, 1, 1)
	if !bytes.Contains(a, []byte(oldKey)) || bytes.Contains(a, []byte(alias)) {
		t.Errorf("the sealed bytes do not name the KMS key: %q", a)
	}
}

// What was altered, moved or cut off never opens.
func TestNeverOpens(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	s := newSealer(t, f, c)
	sealed := mustSeal(t, s, "token 9f8e7d6c5b4a", "record 1")
	never := func(name string, sealed []byte, bound string) {
		t.Helper()
		for which, s := range map[string]*kmsseal.Sealer{"the same process": s, "another one": newSealer(t, f, c)} {
			if got, err := s.Open(t.Context(), sealed, []byte(bound)); got != nil || !errors.Is(err, idempotent.ErrSealBroken) {
				t.Errorf("%s, %s: got %q, %v, want ErrSealBroken", name, which, got, err)
			}
		}
	}
	never("another record", sealed, "record 2")
	for i := range sealed {
		altered := slices.Clone(sealed)
		altered[i] ^= 1
		never(fmt.Sprintf("byte %d", i), altered, "record 1")
		never(fmt.Sprintf("%d bytes", i), sealed[:i], "record 1")
	}
	never("a length without end", append([]byte{1}, bytes.Repeat([]byte{0xff}, 11)...), "record 1")
}

// A data key is used for a bounded time.
func TestDataKeyAges(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	s := newSealer(t, f, c, func(o *kmsseal.Options) { o.MaxAge = time.Minute })
	sealed := mustSeal(t, s, "secret a", "r")
	c.advance(time.Minute - 1)
	mustSeal(t, s, "secret b", "r")
	wantOpen(t, s, sealed, "r", "secret a")
	f.wantCalls(t, 1, 0)
	c.advance(1)
	mustSeal(t, s, "secret c", "r")
	f.wantCalls(t, 2, 0)
	for range 2 { // the old data key is not in memory any more
		wantOpen(t, s, sealed, "r", "secret a")
	}
	f.wantCalls(t, 2, 1)
}

// A data key is used for a bounded number of results.
func TestDataKeyWearsOut(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	s := newSealer(t, f, c, func(o *kmsseal.Options) { o.MaxUses = 3 })
	for i := range 7 {
		mustSeal(t, s, "secret a", "r")
		f.wantCalls(t, 1+i/3, 0)
	}
}

// The number of data keys in memory is bounded; the one that expires first goes.
func TestDataKeysAreDropped(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	s := newSealer(t, f, c, func(o *kmsseal.Options) { o.MaxUses, o.MaxKeys = 1, 2 })
	var sealed [3][]byte
	for i := range sealed {
		sealed[i] = mustSeal(t, s, "secret a", "r")
		c.advance(time.Second)
	}
	wantOpen(t, s, sealed[2], "r", "secret a")
	wantOpen(t, s, sealed[1], "r", "secret a")
	f.wantCalls(t, 3, 0)
	wantOpen(t, s, sealed[0], "r", "secret a")
	f.wantCalls(t, 3, 1)
}

// After the alias names another KMS key, new results are sealed under that one, and
// old results still open.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	f, c, store := newFakeKMS(t), newClock(), memstore.New()
	request := func(s *kmsseal.Sealer, id string) (string, error) {
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Seal, o.Now = s, c.now })
		if err != nil {
			t.Fatal(err)
		}
		key := idempotent.Key{Operation: "issue-token", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes(nil)}
		return idempotent.Do(t.Context(), guard, key, func(context.Context) (string, error) { return "token for " + id, nil })
	}
	stored := func(id string) []byte {
		t.Helper()
		r, err := store.Get(t.Context(), idempotent.Key{Operation: "issue-token", Scope: "acme", ID: id}.RecordID())
		if err != nil || bytes.Contains(r.Result, []byte("token for")) {
			t.Fatalf("stored %q, %v", r.Result, err)
		}
		return r.Result
	}
	s := newSealer(t, f, c)
	if got, err := request(s, "1"); err != nil || got != "token for 1" {
		t.Fatal(got, err)
	}
	f.aliases[alias] = newKey
	c.advance(5 * time.Minute)
	if got, err := request(s, "2"); err != nil || got != "token for 2" {
		t.Fatal(got, err)
	}
	if !bytes.Contains(stored("1"), []byte(oldKey)) || !bytes.Contains(stored("2"), []byte(newKey)) {
		t.Errorf("sealed under other keys: %q, %q", stored("1"), stored("2"))
	}
	for _, s := range []*kmsseal.Sealer{s, newSealer(t, f, c)} {
		for _, id := range []string{"1", "2"} {
			if got, err := request(s, id); err != nil || got != "token for "+id {
				t.Errorf("a replay of %s is %q, %v", id, got, err)
			}
		}
	}

	// A key that is disabled can be enabled again: try later.
	f.keys[oldKey] = disabled
	if _, err := request(newSealer(t, f, c), "1"); !errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("disabled: got error %v, want StoreError", err)
	}
	f.keys[oldKey] = enabled
	if got, err := request(newSealer(t, f, c), "1"); err != nil || got != "token for 1" {
		t.Errorf("enabled again: got %q, %v", got, err)
	}
	// A key that was deleted never comes back, and nothing runs again.
	f.keys[oldKey] = deleted
	if _, err := request(newSealer(t, f, c), "1"); !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
		t.Errorf("deleted: got error %v, want ReplayUnavailableError", err)
	}
	if got, err := request(newSealer(t, f, c), "2"); err != nil || got != "token for 2" {
		t.Errorf("the other key: got %q, %v", got, err)
	}
}

// Trouble that can pass is not reported as broken bytes.
func TestKMSFails(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	sealed := mustSeal(t, newSealer(t, f, c), "secret a", "r")
	for name, trouble := range map[string]error{
		"throttled":   &types.LimitExceededException{},
		"internal":    &types.KMSInternalException{},
		"unavailable": &types.KeyUnavailableException{},
		"timeout":     &types.DependencyTimeoutException{},
		"state":       &types.KMSInvalidStateException{},
		"network":     errors.New("connection reset"),
	} {
		s := newSealer(t, f, c)
		f.fail = trouble
		if got, err := s.Open(t.Context(), sealed, []byte("r")); got != nil || !errors.Is(err, trouble) || errors.Is(err, idempotent.ErrSealBroken) {
			t.Errorf("%s: opened as %q, %v", name, got, err)
		}
		wantOpen(t, s, sealed, "r", "secret a")
		s = newSealer(t, f, c)
		f.fail = trouble
		if got, err := s.Seal(t.Context(), []byte("a"), nil); got != nil || !errors.Is(err, trouble) {
			t.Errorf("%s: sealed as %q, %v", name, got, err)
		}
		mustSeal(t, s, "secret b", "r")
	}
}

// Requests that need a data key at the same time share one, and do not wait longer
// than their contexts.
func TestOneRequestForADataKey(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	s := newSealer(t, f, c)
	entered, reply := make(chan struct{}, 1), make(chan struct{})
	f.during = func(context.Context, map[string]string) {
		entered <- struct{}{}
		<-reply
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if _, err := s.Seal(t.Context(), []byte("a"), nil); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Seal(ctx, []byte("a"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled request got %v", err)
	}
	close(reply)
	wait.Wait()
	f.wantCalls(t, 1, 0)
}

// KMS gets the same encryption context in both calls, so that a key policy can
// require it.
func TestEncryptionContext(t *testing.T) {
	t.Parallel()
	f, c := newFakeKMS(t), newClock()
	var seen []map[string]string
	f.during = func(_ context.Context, bound map[string]string) { seen = append(seen, bound) }
	sealed := mustSeal(t, newSealer(t, f, c), "secret a", "r")
	wantOpen(t, newSealer(t, f, c), sealed, "r", "secret a")
	if len(seen) != 2 || seen[0]["purpose"] != "once-results" || seen[1]["purpose"] != "once-results" {
		t.Errorf("KMS got the contexts %v", seen)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f := newFakeKMS(t)
	for name, broken := range map[string]func() (*kmsseal.Sealer, error){
		"no client": func() (*kmsseal.Sealer, error) { return kmsseal.New(nil, alias) },
		"no key":    func() (*kmsseal.Sealer, error) { return kmsseal.New(f, "") },
		"no age": func() (*kmsseal.Sealer, error) {
			return kmsseal.New(f, alias, func(o *kmsseal.Options) { o.MaxAge = 0 })
		},
		"no use": func() (*kmsseal.Sealer, error) {
			return kmsseal.New(f, alias, func(o *kmsseal.Options) { o.MaxUses = 0 })
		},
		"no keys": func() (*kmsseal.Sealer, error) {
			return kmsseal.New(f, alias, func(o *kmsseal.Options) { o.MaxKeys = 0 })
		},
		"no clock": func() (*kmsseal.Sealer, error) {
			return kmsseal.New(f, alias, func(o *kmsseal.Options) { o.Now = nil })
		},
	} {
		if s, err := broken(); s != nil || err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

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
