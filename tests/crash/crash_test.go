package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

const (
	sideBySide = 8   // keys in progress at once
	wantKills  = 200 // in one run, at least
	deadline   = time.Second
	margin     = 100 * time.Millisecond
)

// fate is the result for the keys of one policy that were killed at one barrier.
type fate struct {
	killed int
	after  map[string]int // the states of the record after the kill, and how often
	final  map[string]int
}

// F90, FM57: a process is killed at every barrier of a request, with real
// SIGKILL. Whatever state it leaves, the client's retries and the reconciler
// lead every key to exactly one effect at the provider, and to a stored result.
func TestFM57_KillAtEveryBarrier(t *testing.T) {
	t.Parallel()
	type run struct {
		policy  policy
		barrier string
	}
	var runs []run
	for _, p := range policies {
		for _, b := range p.barriers() {
			runs = append(runs, run{p, b})
		}
	}
	perRun := (wantKills + len(runs) - 1) / len(runs)

	var (
		mu    sync.Mutex
		fates = map[run]*fate{}
		wg    sync.WaitGroup
		slots = make(chan struct{}, sideBySide)
		kills int
	)
	for _, r := range runs {
		f := &fate{after: map[string]int{}, final: map[string]int{}}
		fates[r] = f
		for range perRun {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				after, final, err := survive(t.Context(), r.policy, r.barrier)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%s, killed %s: %v", r.policy.name, r.barrier, err)
					return
				}
				kills++
				f.killed++
				f.after[after]++
				f.final[final]++
			})
		}
	}
	wg.Wait()

	var table strings.Builder
	for _, r := range runs {
		f := fates[r]
		fmt.Fprintf(&table, "%-22s %-26s %3d   %-34s %s\n", r.policy.name, r.barrier, f.killed, counts(f.after), counts(f.final))
	}
	t.Logf("%d kills; each key has exactly one effect in the end\n%-22s %-26s %s   %-34s %s\n%s", kills, "policy", "killed", "keys", "the record then", "and in the end", table.String())
	if kills < wantKills {
		t.Errorf("%d processes were killed, want at least %d", kills, wantKills)
	}
}

func counts(m map[string]int) string {
	var parts []string
	for _, name := range slices.SortedFunc(maps.Keys(m), cmp.Compare[string]) {
		parts = append(parts, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(parts, ", ")
}

// survive kills a separate process at a barrier, and then does what a client and
// a schedule do. It returns the state of the record after the kill, and in the
// end.
func survive(ctx context.Context, p policy, barrier string) (after, final string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	key := newKey(p)
	if err := killAt(ctx, p, key, barrier); err != nil {
		return "", "", err
	}
	after = p.state(ctx, key)
	guard, err := p.guard(store)
	if err != nil {
		return "", "", err
	}
	value, err := p.retry(ctx, guard, key)
	if err != nil {
		return after, "", err
	}
	calls, effects, err := p.count(ctx, key)
	if err != nil {
		return after, "", err
	}
	if effects != 1 {
		return after, "", fmt.Errorf("there are %d effects after %d calls", effects, calls)
	}
	again, err := p.request(ctx, guard, key, nil)
	if err != nil || again != value {
		return after, "", fmt.Errorf("a last retry gets %.80q (%d bytes), %v after %.80q (%d bytes)", again, len(again), err, value, len(value))
	}
	return after, p.state(ctx, key), nil
}

// state returns the recorded state of a key.
func (p policy) state(ctx context.Context, key idempotent.Key) string {
	r, err := store.Get(ctx, key.RecordID())
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return "no record"
	case err != nil:
		return err.Error()
	}
	return r.State.String()
}

// retry sends the request until it gets a result, as a client does, while the
// reconciler runs on its schedule.
func (p policy) retry(ctx context.Context, g *idempotent.Guard, key idempotent.Key) (string, error) {
	for {
		value, err := p.request(ctx, g, key, nil)
		if err == nil {
			return value, nil
		}
		var running *idempotent.InProgressError
		switch {
		case errors.As(err, &running):
			if err := pause(ctx, running.RetryAfter); err != nil {
				return "", err
			}
		case errors.As(err, new(*idempotent.UnresolvedError)):
			if _, err := idempotent.ReconcileDue(ctx, g, bank.resolve, func(o *idempotent.ReconcileOptions) {
				o.Operations, o.Backoff, o.MaxBackoff = []string{key.Operation}, 10*time.Millisecond, 10*time.Millisecond
				o.MaxAttempts = 1000
			}); err != nil {
				return "", err
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return "", err
			}
		case errors.As(err, new(*idempotent.StoreError)), errors.As(err, new(*idempotent.NoTimeError)):
			// Nothing was executed: with a busy engine, try again.
			if ctx.Err() != nil {
				return "", err
			}
		default:
			return "", err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(envBarrier) != "" {
		child()
		return
	}
	os.Exit(runAll(m))
}
