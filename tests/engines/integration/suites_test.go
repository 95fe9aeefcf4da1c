// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/kmsseal"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/faults"
)

// On DynamoDB Local only; tests/deployed/first runs it on LocalStack, without the lists.
func TestStore(t *testing.T) {
	t.Parallel()
	idempotenttest.RunStore(t, local.fixture())
}

// Without the index the lists come from a scan.
func TestStoreWithoutIndex(t *testing.T) {
	t.Parallel()
	db := local.created(t)
	f := db.fixture()
	f.Open = func(t testing.TB) driver.Store { return db.store(t, noIndex) }
	f.Reopen = func(t testing.TB, _ driver.Store) driver.Store { return f.Open(t) }
	idempotenttest.RunStore(t, f)
}

func noIndex(o *dynamostore.Options) { o.NoIndex = &dynamostore.ScanOptions{} }

// On a table with a sort key, other names and other items, which stay as they are.
func TestSharedTable(t *testing.T) {
	t.Parallel()
	const others = 3000
	t.Run("Store", func(t *testing.T) {
		t.Parallel()
		db := local.between(t, others)
		if err := db.store(t).Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		idempotenttest.RunStore(t, db.fixture())
	})
	t.Run("FailureModes", func(t *testing.T) {
		t.Parallel()
		idempotenttest.RunFailureModes(t, local.between(t, others).fixture(), func(o *idempotenttest.FailureModesOptions) { o.Seeds = 1 })
	})
}

// INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-8, INV-10, INV-12: under faults on
// DynamoDB Local only. LocalStack runs the same engine behind another server.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		idempotenttest.RunFailureModes(t, db.fixture(), func(o *idempotenttest.FailureModesOptions) {
			if db.name == local.name {
				o.Seeds = 4
			}
		})
	})
}

// wired sends requests of one key, the first of them over a faulty wire, with the
// real SDK between the store and the faults.
type wired struct {
	runs int
	out  idempotent.Outcome[string]
	err  error
}

// end is how a request ended.
type end func(*wired) bool

func (w *wired) stored() bool { return w.err == nil && w.out.Stored && !w.out.Replayed && w.runs == 1 }
func (w *wired) unstored() bool {
	return w.err == nil && w.out.Value == "ch_1" && !w.out.Stored && w.runs == 1
}
func (w *wired) replayed() bool { return w.err == nil && w.out.Replayed && w.runs == 1 }
func (w *wired) notRun() bool   { return errors.As(w.err, new(*idempotent.StoreError)) && w.runs == 0 }
func (w *wired) running() bool {
	return errors.As(w.err, new(*idempotent.InProgressError)) && w.runs == 1
}
func (w *wired) unknown() bool {
	return errors.As(w.err, new(*idempotent.UnresolvedError)) && w.runs == 1
}

// The SDK sends a request again after a lost reply, and after a refusal for a
// while. Then the store does, or the guard.
func TestOnTheWire(t *testing.T) {
	t.Parallel()
	throttledInsert := faults.Injection{Op: "PutItem", Fault: faults.Throttled}
	completionThrottled := func(c faults.Call) faults.Fault {
		if c.N == 1 {
			return faults.NoFault
		}
		return faults.ThroughputExceeded
	}
	for _, row := range []struct {
		name        string
		plan        faults.Plan
		timeout     time.Duration
		first       end
		least, most int   // requests that the SDK sends
		later       []end // on a good wire, a minute apart
	}{
		{"FM01_InsertReplyLostOnTheWire", faults.On("", faults.LostReply, 1), 10 * time.Second, (*wired).stored, 3, 3, []end{(*wired).replayed}},
		// The release is applied, although its reply is lost as well.
		{"FM02_EveryReplyLostOnTheWire", faults.On("", faults.LostReply), 10 * time.Second, (*wired).notRun, 2, 100, []end{(*wired).stored}},
		{"FM08_CompletionReplyLostOnTheWire", faults.On("", faults.LostReply, 2), 10 * time.Second, (*wired).stored, 3, 3, []end{(*wired).replayed}},
		{"FM09_CompletionThrottled", completionThrottled, 10 * time.Second, (*wired).unstored, 3, 100, []end{(*wired).running, (*wired).unknown}},
		// The SDK retries a conflict only once: the third try is the store's.
		{"FM22_TransactionConflictOnTheWire", faults.On("", faults.TransactionConflict, 1, 2, 4), 10 * time.Second, (*wired).stored, 5, 5, []end{(*wired).replayed}},
		{"FM23_ReplicatedWriteConflictOnTheWire", faults.On("", faults.ReplicatedWriteConflict, 1, 2, 4), 10 * time.Second, (*wired).stored, 5, 5, []end{(*wired).replayed}},
		// Six tries of the claim, and six of its release, which may last half of the rest of the time.
		{"FM24_ThrottledForLongerThanTheTime", faults.On("", faults.Throttled), 3 * time.Second, (*wired).notRun, 12, 12, []end{(*wired).stored}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			engines(t, func(t *testing.T, db *database) {
				now, wire := time.Now(), newWire(t)
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(now)) // engines delete what has expired
					w, key := &wired{}, newKey()
					send := func(ctx context.Context, in *faults.Injector, want end, which string) {
						s := db.over(t, in.Transport(wire))
						w.out, w.err = idempotent.DoOutcome(ctx, guardOver(t, s), key, func(context.Context) (string, error) {
							w.runs++
							return "ch_1", nil
						})
						if !want(w) {
							t.Errorf("the %s request got %+v and error %v after %d runs", which, w.out, w.err, w.runs)
						}
					}
					in := &faults.Injector{Plan: row.plan}
					ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
					defer cancel()
					began := time.Now()
					send(ctx, in, row.first, "first")
					// A request that was not run, and sent nothing that arrived, ends in time.
					if took := time.Since(began); in.Injected()[throttledInsert] > 0 && took > row.timeout {
						t.Errorf("it took %s of %s", took, row.timeout)
					}
					if n := in.Calls(""); n < row.least || n > row.most {
						t.Errorf("%d requests were sent, want %d to %d", n, row.least, row.most)
					}
					for _, want := range row.later {
						send(t.Context(), &faults.Injector{}, want, "later")
						time.Sleep(time.Minute)
					}
				})
			})
		})
	}
}

// wire sends requests from outside of a bubble of synctest, in which the clock stands
// still meanwhile. So a request takes no time, however busy the machine is.
type wire struct {
	mu       sync.Mutex
	requests chan *http.Request
	replies  chan reply
}

type reply struct {
	*http.Response
	err error
}

func newWire(t *testing.T) *wire {
	w := &wire{requests: make(chan *http.Request), replies: make(chan reply)}
	t.Cleanup(func() { close(w.requests) })
	go func() {
		for r := range w.requests {
			res, err := http.DefaultTransport.RoundTrip(r.WithContext(context.Background()))
			if err == nil {
				var body []byte
				body, err = io.ReadAll(res.Body)
				res.Body.Close()
				res.Body = io.NopCloser(bytes.NewReader(body))
			}
			w.replies <- reply{res, err}
		}
	}()
	return w
}

// RoundTrip sends one request at a time.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests <- r
	got := <-w.replies
	return got.Response, got.err
}

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
