package idempotent_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

func TestResolveRefusals(t *testing.T) {
	t.Parallel()
	id := newKey().RecordID()
	down := errors.New("store down")
	unknown := idempotent.Record{ID: id, State: idempotent.StateUnknown, Expires: time.Time{}}
	for name, row := range map[string]struct {
		store      idempotent.Store
		id         idempotent.RecordID
		resolution idempotent.Resolution
		want       error
		says       string
	}{
		"no record":       {memstore.New(), id, idempotent.Resolved(1), idempotent.ErrNoRecord, "charge#"},
		"no id":           {memstore.New(), "charge", idempotent.Resolved(1), idempotent.ErrInvalidKey, "RecordID"},
		"nothing said":    {memstore.New(), id, idempotent.Resolution{}, nil, "says nothing"},
		"not encodable":   {memstore.New(), id, idempotent.Resolved(math.NaN()), nil, "cannot encode"},
		"get fails":       {&scripted{Store: memstore.New(), getErr: down}, id, idempotent.Resolved(1), idempotent.ErrStore, "get"},
		"replace fails":   {&scripted{Store: holding(t, unknown), replaceErr: down}, id, idempotent.Resolved(1), down, "replace"},
		"record vanishes": {&scripted{Store: holding(t, unknown), replaceErr: idempotent.ErrNoRecord}, id, idempotent.Resolved(1), idempotent.ErrNoRecord, ""},
		"too large":       {&scripted{Store: holding(t, unknown), limit: 1}, id, idempotent.Resolved("long"), idempotent.ErrTooLarge, "result"},
		"changes forever": {&scripted{Store: memstore.New(), standing: &unknown}, id, idempotent.Resolved(1), idempotent.ErrStore, "changed"},
		"expired":         {holding(t, idempotent.Record{ID: id, State: idempotent.StateCompleted, Expires: time.Unix(1, 0)}), id, idempotent.Resolved(1), idempotent.ErrNoRecord, "expired"},
	} {
		g, _ := newGuardOver(t, row.store)
		err := g.Resolve(t.Context(), row.id, row.resolution)
		if err == nil || row.want != nil && !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got error %v, want %v that says %q", name, err, row.want, row.says)
		}
	}
}

func holding(t *testing.T, r idempotent.Record) *memstore.Store {
	t.Helper()
	s := memstore.New()
	if met, err := s.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
		t.Fatal(met, err)
	}
	return s
}

// The resolver's result is replayed through the codec of the handler it stands
// in for.
func TestResolvedWith(t *testing.T) {
	t.Parallel()
	clock := &idempotenttest.Clock{}
	g, _ := newGuard(t, func(o *idempotent.Options) { o.Now = clock.Now })
	key := newKey()
	useRaw := func(o *idempotent.Options) { o.Codec = raw{} }
	do := func() (string, error) {
		return idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", errors.New("no reply") }, useRaw)
	}
	if _, err := do(); err == nil {
		t.Fatal("the error was swallowed")
	}
	if err := g.Resolve(t.Context(), key.RecordID(), idempotent.ResolvedWith(raw{}, "ch_1")); err != nil {
		t.Fatal(err)
	}
	if got, err := do(); got != "ch_1" || err != nil {
		t.Errorf("the retry got %q and error %v, want the resolver's result", got, err)
	}
}

// A resolution keeps what the owner wrote about itself.
func TestResolveKeepsTheRest(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuardOver(t, s)
	key := newKey()
	idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		e, _ := idempotent.FromContext(ctx)
		return 0, errors.Join(e.SetRef("orders/7"), errors.New("no reply"))
	})
	before, err := s.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved(7)); err != nil {
		t.Fatal(err)
	}
	after, err := s.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	if after.Version == before.Version || after.Owner != before.Owner || after.Attempt != 1 || after.Ref != "orders/7" ||
		!after.Created.Equal(before.Created) || after.Reason != idempotent.ReasonResolved || !after.Due.IsZero() || after.Expires.IsZero() {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}
