package idempotenttest

import (
	"context"
	"errors"
	"math/rand"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Results: large ones, ones that are gone, other versions, caches.
var resultScenarios = []scenario{
	{"FM34_ResultOf399KB", func(l *lab) { l.largeResult(399 << 10) }},
	{"FM34_ResultOf401KB", func(l *lab) { l.largeResult(401 << 10) }},
	{"FM34_ResultOf1MB", func(l *lab) { l.largeResult(1 << 20) }}, // several pieces
	// G09: all that Lambda can return.
	{"FM34_ResultOf6MB", func(l *lab) { l.largeResult(6 << 20) }},
	{"FM34_NoTimeForAllOfIt", func(l *lab) {
		a := l.worker()
		if a.chunks == nil {
			a.tap.onReplace = func(r driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
				if len(r.Result) > 0 {
					return nil, idempotent.ErrTooLarge
				}
				return write()
			}
		} else {
			a.inject(On(OpPutChunks, LostRequest))
		}
		want := noise(400 << 10)
		out, err := a.do(func(context.Context) (string, error) {
			l.effects.Add(1)
			return want, nil
		})
		l.must(err)
		if out.Value != want || out.Stored {
			l.Fatalf("A got %d bytes, stored %v; want its result, not stored", len(out.Value), out.Stored)
		}
		l.wantEvents(idempotent.EventCompletionFailed)
		l.wantState(driver.StateCompleted)
		l.worker().wantRefused(idempotent.ErrReplayUnavailable)
		l.wantEffects(1)
	}},
	{"FM35_ChunksWrittenAndTheCompletionLost", func(l *lab) {
		a := l.worker()
		a.inject(On(OpReplace, LostRequest))
		_, err := a.do(func(context.Context) (string, error) { return noise(20 << 10), nil })
		l.must(err)
		l.worker().wantRefused(idempotent.ErrInProgress)
		l.endLease()
		b := l.worker()
		b.wantRefused(idempotent.ErrUnresolved)
		l.must(b.notExecuted())
		b.wantRuns("ch_b") // what was left behind is in nobody's way
		b.wantReplay("ch_b")
	}},
	{"FM35_ChunkDeletedOrAltered", func(l *lab) {
		want := noise(20 << 10)
		_, err := l.worker().do(func(context.Context) (string, error) { return want, nil })
		l.must(err)
		b := l.worker()
		if b.chunks == nil {
			b.wantReplay(want)
			return // the result is part of the record: nothing to delete beside it
		}
		b.chunks.onGet = func(func() ([]byte, error)) ([]byte, error) { return nil, idempotent.ErrNoRecord }
		b.wantRefused(idempotent.ErrReplayUnavailable)
		for _, alter := range []func([]byte) []byte{
			func(d []byte) []byte { d[len(d)/2] ^= 1; return d },
			func(d []byte) []byte { return d[:len(d)-1] },
			func(d []byte) []byte { return append(d, 0) },
		} {
			b.chunks.onGet = func(read func() ([]byte, error)) ([]byte, error) {
				d, err := read()
				if err != nil {
					return nil, err
				}
				return alter(d), nil
			}
			b.wantRefused(idempotent.ErrReplayUnavailable)
		}
		b.chunks.onGet = nil
		b.inject(On(OpGetChunks, LostReply))
		b.wantRefused(idempotent.ErrStore) // a retry may have better luck
		b.inject()
		b.wantReplay(want)
	}},
	// F62: a result has the version of its shape.
	{"FM36_OtherResultVersion", func(l *lab) {
		v1 := func(o *idempotent.Options) { o.ResultVersion = "1" }
		v2 := func(o *idempotent.Options) { o.ResultVersion = "2" }
		l.worker(v1).wantRuns("ch_1")
		l.worker(v2).wantRefused(idempotent.ErrReplayUnavailable)
		l.worker().wantRefused(idempotent.ErrReplayUnavailable)
		l.worker(v1).wantReplay("ch_1")
	}},
	{"FM36_FinalErrorsHaveNoVersion", func(l *lab) {
		declined := idempotent.Final("declined", "no funds")
		_, err := l.worker(func(o *idempotent.Options) { o.ResultVersion = "1" }).do(func(context.Context) (string, error) {
			return "", declined
		})
		l.mustBe(err, declined)
		_, err = l.worker(func(o *idempotent.Options) { o.ResultVersion = "2" }).do(l.never())
		var final *idempotent.FinalError
		if !errors.As(err, &final) || final.Code != "declined" {
			l.Fatalf("a retry got %v, want the Final error", err)
		}
	}},
	{"FM38_CacheKnowsTheExpiry", func(l *lab) {
		a := l.worker(cached, func(o *idempotent.Options) { o.CacheAge, o.Retention = 48*time.Hour, time.Hour })
		a.wantRuns("ch_1")
		calls := a.tap.calls.Load()
		a.wantReplay("ch_1")
		if a.tap.calls.Load() != calls {
			l.Fatal("a cached replay called the store")
		}
		l.clock.AdvanceTo(l.record().Expires)
		a.wantRuns("ch_2")
		a.wantReplay("ch_2")
	}},
	{"FM38_CacheBindsThePayload", func(l *lab) {
		a := l.worker(cached)
		a.wantRuns("ch_1")
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		_, err := a.doKey(other, l.never())
		l.mustBe(err, idempotent.ErrMismatch)
	}},
	{"FM38_OnlyCompletedRecordsAreCached", func(l *lab) {
		a := l.worker(cached)
		_, err := a.do(func(context.Context) (string, error) { return "", errNoReply })
		l.mustBe(err, errNoReply)
		a.wantRefused(idempotent.ErrUnresolved)
		l.must(l.worker().found("ch_resolved"))
		a.wantReplay("ch_resolved")
	}},
	{"FM38_CacheAges", func(l *lab) {
		a := l.worker(cached)
		a.wantRuns("ch_1")
		l.clock.Advance(time.Minute)
		calls := a.tap.calls.Load()
		a.wantReplay("ch_1")
		if a.tap.calls.Load() == calls {
			l.Fatal("a record older than CacheAge was taken from the cache")
		}
	}},
	{"FM63_LateChunksAgainstAResolution", func(l *lab) {
		resolved, late := noise(30<<10), noise(31<<10)
		a := l.worker()
		out, err := a.do(func(context.Context) (string, error) {
			l.endLease()
			l.worker().wantRefused(idempotent.ErrUnresolved)
			l.must(l.worker().found(resolved))
			return late, nil
		})
		l.must(err)
		if out.Value != resolved || !out.Replayed {
			l.Fatalf("A got %d bytes, want the resolver's", len(out.Value))
		}
		l.worker().wantReplay(resolved)
	}},
}

func cached(o *idempotent.Options) { o.CacheEntries = 16 }

// noise returns text that does not compress to nothing, the same every time.
func noise(size int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	r := rand.New(rand.NewSource(int64(size)))
	b := make([]byte, size)
	for i := range b {
		b[i] = letters[r.Intn(len(letters))]
	}
	return string(b)
}

// rawCodec stores text as it is, so that a result has exactly the size that a
// scenario says.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "raw" }
func (rawCodec) Encode(v any) ([]byte, error)    { return []byte(v.(string)), nil }
func (rawCodec) Decode(data []byte, v any) error { *v.(*string) = string(data); return nil }

// largeResult stores a result that does not compress and wants it back whole,
// from the store itself. Megabytes take real time, and a busy machine takes more
// of it.
func (l *lab) largeResult(size int) {
	l.Helper()
	data := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(data)
	want, raw := string(data), func(o *idempotent.Options) { o.Codec = rawCodec{} }
	out, err := l.worker(raw).doIn(l.clock.Invocation(context.Background(), 5*time.Minute), l.key, func(context.Context) (string, error) {
		l.effects.Add(1)
		return want, nil
	})
	l.must(err)
	if !out.Stored || out.Value != want {
		l.Fatalf("A got %d bytes, stored %v; want its stored result", len(out.Value), out.Stored)
	}
	l.worker(raw).wantReplay(want)
	l.wantEffects(1)
}
