// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	randv2 "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
)

// recovery does what clients, a schedule and an operator do after the storm. It
// has its own connection to the engine.
type recovery struct {
	fixture
	client   *dynamodb.Client
	parallel int
}

// unlisted returns the records that wait for evidence and are on no list, and
// the numbers of due and exhausted ones. It is called when every lease has
// ended.
func (v *recovery) unlisted(ctx context.Context) (violations []string, due, exhausted int, err error) {
	listed := map[idempotent.RecordID]bool{}
	for _, list := range []iter.Seq2[driver.Listed, error]{v.store.Due(ctx, time.Time{}), v.store.Running(ctx)} {
		for r, err := range list {
			if err != nil {
				return nil, 0, 0, err
			}
			listed[r.ID] = true
			due++
		}
	}
	for r, err := range v.store.Exhausted(ctx) {
		if err != nil {
			return nil, 0, 0, err
		}
		listed[r.ID] = true
		exhausted++
	}
	for r, err := range v.store.Scan(ctx) {
		if err != nil {
			return nil, 0, 0, err
		}
		if waits(&r) && !listed[r.ID] {
			violations = append(violations, fmt.Sprintf("%s (%s, %s) is %s and on no list", r.ID.KeyHash(), r.Recovery, r.RequestID, r.State))
		}
	}
	return violations, due, exhausted, nil
}

// announcements are the runs that announced themselves, and what became of them.
type announcements struct {
	heralds    *ledger
	seen       *kit.Tally
	announced  int             // counted in seen
	over       map[string]int  // how many of a record's announcements are settled
	listed     map[string]bool // records that were in the list of due records
	violations []string
}

// check looks for each announced run whose lease has ended in the list of due
// records, unless its record was processed before the list was read.
func (a *announcements) check(ctx context.Context, s *dynamostore.Store) error {
	began := time.Now()
	if waiting, err := a.waiting(ctx, s, began); err != nil || len(waiting) == 0 {
		return err
	}
	due := map[string]bool{}
	for r, err := range s.Due(ctx, time.Time{}) {
		if err != nil {
			return err
		}
		due[string(r.ID)] = true
	}
	waiting, err := a.waiting(ctx, s, began)
	if err != nil {
		return err
	}
	for record, r := range waiting {
		if due[record] {
			if !a.listed[record] {
				a.seen.Add(factListed, 1)
			}
			a.listed[record] = true
		} else {
			a.violations = append(a.violations, fmt.Sprintf("%s (%s) announced itself, its lease ended at %s, and it is not in the list of due records", r.ID.KeyHash(), r.RequestID, r.LeaseEnd))
		}
	}
	return nil
}

// waiting returns the records whose announced run is the last one, with a lease that has
// ended at the time now.
func (a *announcements) waiting(ctx context.Context, s *dynamostore.Store, now time.Time) (map[string]*driver.Record, error) {
	all, err := a.heralds.all()
	if err != nil {
		return nil, err
	}
	a.seen.Add(factAnnounced, len(all)-a.announced)
	a.announced = len(all)
	waiting := map[string]*driver.Record{}
	for record, entries := range all {
		if a.over[record] == len(entries) {
			continue // a settled run never waits again
		}
		r, err := s.Get(ctx, idempotent.RecordID(record))
		switch {
		case err != nil && !errors.Is(err, idempotent.ErrNoRecord):
			return nil, err
		case err != nil || r.State != driver.StateInProgress || !slices.ContainsFunc(entries, func(e entry) bool { return e.Request == r.RequestID }):
			a.over[record] = len(entries)
		case !now.Before(r.LeaseEnd):
			waiting[record] = r
		}
	}
	return waiting, nil
}

// waits reports whether a record is not settled and the next request may not
// run without evidence.
func waits(r *driver.Record) bool {
	switch r.State {
	case driver.StateUnknown:
		return true
	case driver.StateInProgress:
		return r.Recovery != idempotent.Rerun
	case driver.StateRetryable:
		return r.Recovery == idempotent.Resume && (len(r.Steps) > 0 || !r.OpenSince.IsZero())
	default:
		return false
	}
}

// errEnough ends a recovery that takes too long. A request without an answer by
// then is a violation.
var errEnough = errors.New("chaos: the recovery takes too long")

// run repeats every request until it is answered or the time is up, while the
// reconciler runs.
func (v *recovery) run(ctx context.Context, works []*work, limit time.Duration) error {
	ctx, enough := context.WithTimeoutCause(ctx, limit, errEnough)
	defer enough()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var schedule sync.WaitGroup
	schedule.Go(func() {
		for pause(ctx, time.Second) == nil {
			if err := v.settle(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		}
	})
	var requests sync.WaitGroup
	queue := make(chan *work)
	for range v.parallel {
		requests.Go(func() {
			for w := range queue {
				if w.promise != brief { // its record may have expired
					w.final = v.repeat(ctx, w)
				}
			}
		})
	}
	for _, w := range works {
		queue <- w
	}
	close(queue)
	requests.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	schedule.Wait()
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// repeat sends a request until it is answered.
func (v *recovery) repeat(ctx context.Context, w *work) answer {
	for n := 0; ; n++ {
		q := request{Name: fmt.Sprintf("recovery/%d", n), Promise: w.promise, Key: w.key, Deadline: time.Now().Add(5 * time.Minute)}
		a := func() answer {
			ctx, cancel := context.WithDeadline(context.WithValue(ctx, requestKey{}, q.Name), q.Deadline)
			defer cancel()
			return v.do(ctx, q)
		}()
		if a.settled() || slices.Contains(never, a.Class) || pause(ctx, 50*time.Millisecond) != nil {
			return a
		}
	}
}

// settle runs the reconciler, and treats exhausted records as an operator does:
// it submits the same evidence by hand.
func (v *recovery) settle(ctx context.Context) error {
	if _, err := v.reconcile(ctx); err != nil {
		return err
	}
	guard, err := v.guard(reconcile)
	if err != nil {
		return err
	}
	for e, err := range v.store.Exhausted(ctx) {
		if err != nil {
			return err
		}
		r, err := v.store.Get(ctx, e.ID)
		if err != nil {
			return err
		}
		said, err := v.evidence(ctx, r.ID, r.Recovery, r.State, r.RequestID)
		if err != nil {
			return err
		}
		if said == saidLater {
			continue
		}
		switch err := guard.Resolve(ctx, r.ID, resolution(*r, said)); {
		case err == nil, errors.As(err, new(*idempotent.InProgressError)), errors.As(err, new(*idempotent.SettledError)), errors.Is(err, idempotent.ErrNoRecord):
		default:
			return err
		}
	}
	return nil
}

// leftover returns what must not be in the table after recovery: records that
// are not completed, and chunks that are never removed or were removed too
// soon.
func (v *recovery) leftover(ctx context.Context) (violations []string, records, chunks int, err error) {
	byID := map[string]driver.Record{}
	for r, err := range v.store.Scan(ctx) {
		if err != nil {
			return nil, 0, 0, err
		}
		byID[string(r.ID)] = r
		// No request comes for a brief record that has to run again.
		free := r.State == driver.StateRetryable && r.ID.Operation() == operations[brief]
		if r.State != driver.StateCompleted && !free {
			violations = append(violations, fmt.Sprintf("%s is %s after recovery", r.ID.KeyHash(), r.State))
		}
	}
	found := map[string]time.Time{} // when DynamoDB may delete a chunk
	err = v.scan(ctx, v.store.Table(), func(it map[string]types.AttributeValue) {
		if _, isChunk := it["part"]; isChunk {
			found[stringOf(it[tabledef.PartitionKey])] = secondsOf(it[tabledef.TTLAttribute])
		}
	})
	return append(violations, judgeChunks(byID, found, time.Now())...), len(byID), len(found), err
}

// judgeChunks checks the chunks of a table: each has a time to live, unless its
// record never expires and names it; no chunk stays much longer than a record
// that is written now would; and the chunks that a record names exist, for
// longer than the record.
func judgeChunks(records map[string]driver.Record, chunks map[string]time.Time, now time.Time) (violations []string) {
	named := map[string]bool{}
	for id, r := range records {
		for i := range r.Chunks.Count {
			key := fmt.Sprintf("%s#%s#%d", id, hex.EncodeToString(r.Version[:]), i)
			named[key] = true
			ttl, there := chunks[key]
			switch {
			case !there:
				violations = append(violations, fmt.Sprintf("%s names chunk %d of %d, which is missing", r.ID.KeyHash(), i, r.Chunks.Count))
			case !ttl.IsZero() && (r.Expires.IsZero() || ttl.Before(r.Expires)):
				violations = append(violations, fmt.Sprintf("%s outlives its chunk %d: %s, %s", r.ID.KeyHash(), i, r.Expires, ttl))
			}
		}
	}
	const longest = retention + 3*time.Hour // the store holds a chunk two hours longer, and leases take a second
	for key, ttl := range chunks {
		id := key[:strings.LastIndex(key[:strings.LastIndex(key, "#")], "#")]
		r := records[id]
		switch {
		case ttl.IsZero() && (!named[key] || !r.Expires.IsZero()):
			violations = append(violations, "the chunk "+key+" never expires, and no record that never expires names it")
		case ttl.After(now.Add(longest)):
			violations = append(violations, fmt.Sprintf("the chunk %s expires at %s, later than any record", key, ttl))
		}
	}
	slices.Sort(violations)
	return violations
}

// updates returns the proofs of the updates of the item of each record.
func (v *recovery) updates(ctx context.Context) (map[string][]string, error) {
	proofs := map[string][]string{}
	return proofs, v.scan(ctx, v.orders, func(it map[string]types.AttributeValue) {
		list, _ := it["proofs"].(*types.AttributeValueMemberL)
		if list == nil {
			return
		}
		for _, proof := range list.Value {
			record := stringOf(it[tabledef.PartitionKey])
			proofs[record] = append(proofs[record], stringOf(proof))
		}
	})
}

func (v *recovery) scan(ctx context.Context, table string, found func(map[string]types.AttributeValue)) error {
	pages := dynamodb.NewScanPaginator(v.client, &dynamodb.ScanInput{TableName: aws.String(table), ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			found(it)
		}
	}
	return nil
}

func stringOf(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

// secondsOf returns the time in a number of seconds, or zero without one.
func secondsOf(v types.AttributeValue) time.Time {
	n, _ := v.(*types.AttributeValueMemberN)
	if n == nil {
		return time.Time{}
	}
	seconds, _ := strconv.ParseInt(n.Value, 10, 64) // DynamoDB stores numbers
	return time.Unix(seconds, 0)
}

// effectsOf returns the effects of a key, and the proof that its results
// contain.
func (v *recovery) effectsOf(w *work, b *provider, updates map[string][]string) (effects []effect, proof string, err error) {
	id := string(w.record)
	switch w.promise {
	case reconcile, atMostOnce, overHTTP, inBatches, brief, shadowed:
		entries, err := v.ledger.of(id)
		if err != nil {
			return nil, "", err
		}
		e := effect{name: "in the ledger"}
		for _, entry := range entries {
			e.proofs = append(e.proofs, entry.Proof)
		}
		effects = []effect{e}
	case commit, commitStep:
		effects = []effect{{name: "on the order", proofs: updates[id]}}
	case resume, rerun:
		for _, step := range w.promise.paid() {
			effects = append(effects, effect{name: step, proofs: b.paid(id, step)})
		}
		for _, e := range effects {
			if len(e.proofs) > 0 {
				proof += e.proofs[0] + " "
			}
		}
		return effects, proof, nil
	}
	if len(effects[0].proofs) > 0 {
		proof = effects[0].proofs[0]
	}
	return effects, proof, nil
}

// verdict returns the violations of all works after recovery, and how many results
// are not stored.
func (v *recovery) verdict(ctx context.Context, works []*work, b *provider) (violations []string, unkept int, err error) {
	updates, err := v.updates(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, w := range works {
		effects, proof, err := v.effectsOf(w, b, updates)
		if err != nil {
			return nil, 0, err
		}
		violations = append(violations, judge(w, effects, proof)...)
		if w.final.Class == classUnavailable {
			unkept++
		}
	}
	return violations, unkept, nil
}

// work is one key of the storm, with all answers that clients got.
type work struct {
	promise   promise
	key       string
	record    idempotent.RecordID
	born      time.Time
	forgotten int  // how often its outcome was forgotten, at most
	corrected bool // an operator has replaced its outcome
	inShadow  int  // how many requests came in shadow mode
	hurried   bool // its process had too little time for a large result, perhaps
	answers   []answer
	final     answer // of the recovery phase
}

func newWork(p promise, key string) *work {
	return &work{promise: p, key: key, record: p.key(key).RecordID(), born: time.Now()}
}

// book has all keys of the storm.
type book struct {
	pace   pace
	mu     sync.Mutex
	works  map[promise][]*work
	byKey  map[string]*work
	silent map[promise][]*work        // works without a final answer to the last request, the oldest first
	count  map[promise]map[string]int // answers by class
}

func newBook() *book {
	b := &book{
		works: map[promise][]*work{}, byKey: map[string]*work{},
		silent: map[promise][]*work{}, count: map[promise]map[string]int{},
	}
	for _, p := range append(slices.Clone(promises), sweep) {
		b.count[p] = map[string]int{}
	}
	return b
}

// pace is how fast new keys come. A storm longer than ten minutes has as many as one of ten
// minutes, or the passes over its table would take all the time of DynamoDB Local.
type pace struct {
	begun  time.Time
	length time.Duration
}

// allows reports whether a key may be new after so many.
func (p pace) allows(keys int) bool {
	const inTenMinutes = 24_000 // an idle machine draws forty a second
	return p.length <= 10*time.Minute || float64(keys) <= inTenMinutes*time.Since(p.begun).Seconds()/p.length.Seconds()
}

// pick draws the key of the next request: a new one, one that is probably
// running, one whose last client got no answer, or any.
func (b *book) pick(p promise, r *randv2.Rand) *work {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.works[p]
	switch chance := r.Float64(); {
	case p != brief && len(b.silent[p]) > 0 && chance < 0.15:
		w := b.silent[p][0]
		b.silent[p] = b.silent[p][1:]
		return w
	case len(all) == 0 || chance < 0.5 && b.pace.allows(len(b.byKey)) || p == brief && time.Since(all[len(all)-1].born) > youth:
		w := newWork(p, fmt.Sprintf("%s-%09d", operations[p], len(all)))
		b.works[p] = append(all, w)
		b.byKey[w.key] = w
		return w
	case p == brief:
		return all[len(all)-1]
	case chance < 0.9:
		return all[len(all)-1-r.IntN(min(len(all), 12))]
	default:
		return all[r.IntN(len(all))]
	}
}

// any draws a key that was used, or returns nil.
func (b *book) any(p promise, r *randv2.Rand) *work {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.works[p]) == 0 {
		return nil
	}
	return b.works[p][r.IntN(len(b.works[p]))]
}

// forget records that the outcome of w may be forgotten now.
func (b *book) forget(w *work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.forgotten++
}

// correct records that the outcome of w was replaced.
func (b *book) correct(w *work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.corrected = true
}

// write records the answer to a request.
func (b *book) write(q request, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[q.Promise][a.Class]++
	if w := b.byKey[q.Key]; w != nil {
		w.answers = append(w.answers, a)
		if q.Shadow {
			w.inShadow++
		}
		if !a.settled() {
			b.silent[q.Promise] = append(b.silent[q.Promise], w)
		}
	}
}

// all returns every key.
func (b *book) all() []*work {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*work
	for _, p := range promises {
		all = append(all, b.works[p]...)
	}
	return all
}

// requests returns how many requests were sent.
func (b *book) requests() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, classes := range b.count {
		for _, times := range classes {
			n += times
		}
	}
	return n
}

// table returns the answers by promise and class.
func (b *book) table() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var t strings.Builder
	columns := append(slices.Clone(promises), sweep)
	fmt.Fprintf(&t, "\n%-18s", "answers")
	for _, p := range columns {
		fmt.Fprintf(&t, "%14s", p)
	}
	for _, class := range classes {
		fmt.Fprintf(&t, "\n%-18s", class)
		for _, p := range columns {
			fmt.Fprintf(&t, "%14d", b.count[p][class])
		}
	}
	fmt.Fprintf(&t, "\n%-18s", "keys")
	for _, p := range promises {
		fmt.Fprintf(&t, "%14d", len(b.works[p]))
	}
	return t.String()
}

// effect is what the harness found of one effect of a key: the proofs that its
// executions left, one for each.
type effect struct {
	name   string
	proofs []string
}

// judge compares the answers about a key with its effects after recovery, and
// returns the violations. proof is what the results must contain.
func judge(w *work, effects []effect, proof string) (violations []string) {
	report := func(format string, args ...any) {
		violations = append(violations, fmt.Sprintf("%s, %s: ", w.key, w.record.KeyHash())+fmt.Sprintf(format, args...))
	}
	answered := false
	for _, a := range append(slices.Clone(w.answers), w.final) {
		if slices.Contains(never, a.Class) {
			report("request %s got a %s: %s", a.Name, a.Class, a.Detail)
		}
		answered = answered || a.Proof != "" || a.Acknowledged
		if a.Proof == "" {
			continue
		}
		if again := w.forgotten + w.inShadow; a.Proof != proof && (again == 0 || !slices.Contains(effects[0].proofs, a.Proof)) {
			report("request %s got the result %q, but the effect left %q", a.Name, a.Proof, proof)
		}
		if a.Stored && w.final.Class == classUnavailable {
			report("request %s got a stored result, but a replay gets none: %s", a.Name, w.final.Detail)
		}
	}
	for _, e := range effects {
		switch n := len(e.proofs); {
		case n > 1+w.forgotten+w.inShadow:
			report("the effect %s happened %d times", e.name, n)
		case n == 0 && answered:
			report("a client got a result, but the effect %s is lost", e.name)
		case n == 0 && w.promise != brief:
			report("the effect %s did not happen after recovery", e.name)
		}
	}
	if w.corrected && w.final.Proof != "" && !w.final.Corrected {
		report("an operator has corrected the outcome, and the last request got the one before")
	}
	if w.promise != brief && !w.final.settled() {
		report("the last request of the recovery got %q: %s", w.final.Class, w.final.Detail)
	}
	if len(violations) > 0 {
		violations = append(violations, "  its answers: "+w.history())
	}
	return violations
}

// settled reports whether the answer is final.
func (a answer) settled() bool {
	switch a.Class {
	case classDone, classReplayed, classUnavailable:
		return true
	}
	return false
}

func (w *work) history() string {
	var parts []string
	for _, a := range append(slices.Clone(w.answers), w.final) {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Name, a.Class, a.Proof)))
	}
	return strings.Join(parts, "; ")
}
