// SPDX-License-Identifier: Apache-2.0

// Package provider simulates a payment provider: a small HTTP service with its
// own ledger, which counts the real charges.
//
//	POST /charges                       books a charge; needs an Idempotency-Key
//	GET  /charges                       the ledger, as a JSON array
//	GET  /charges?idempotency_key=KEY   the charge that was booked under a key
//	GET  /charges/{id}                  one charge
//
// A repeated key with the same parameters gets the charge that was booked the
// first time, even for simultaneous requests and after any number of crashes. A
// repeated key with other parameters is refused with 422. A charge is on disk
// before the answer is sent.
//
// Two customers are special: "cus_declined" has a card that is always declined,
// which books nothing; for "cus_slow" the charge is booked first, and the
// answer is delayed.
package provider

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The special customers.
const (
	CustomerSlow     = "cus_slow"
	CustomerDeclined = "cus_declined"
)

// Options are options of [New]. The zero value of each field is its default.
type Options struct {
	// Slow delays the answer for [CustomerSlow], after the charge was booked.
	// Default: 2 s, or until the caller disconnects.
	Slow func(context.Context)
}

// Provider is the service. It is safe for concurrent use.
type Provider struct {
	opts Options
	mux  *http.ServeMux

	mu     sync.Mutex
	ledger *ledger
}

// SlowFor returns an [Options.Slow] that takes d, or less if the caller disconnects.
func SlowFor(d time.Duration) func(context.Context) {
	return func(ctx context.Context) { wait(ctx, d) }
}

// New returns a provider with its ledger in the file path, which it creates if
// necessary. The error describes what is wrong with the file.
func New(path string, optFns ...func(*Options)) (*Provider, error) {
	o := Options{Slow: SlowFor(2 * time.Second)}
	for _, f := range optFns {
		f(&o)
	}
	l, err := openLedger(path)
	if err != nil {
		return nil, err
	}
	p := &Provider{opts: o, mux: http.NewServeMux(), ledger: l}
	for pattern, h := range p.Routes("") {
		p.mux.Handle(pattern, h)
	}
	return p, nil
}

// Routes returns the handlers of the provider's API below a path, by the patterns of
// [http.ServeMux].
func (p *Provider) Routes(below string) map[string]http.Handler {
	return map[string]http.Handler{
		"POST " + below + "/charges":     http.HandlerFunc(p.create),
		"GET " + below + "/charges":      http.HandlerFunc(p.list),
		"GET " + below + "/charges/{id}": http.HandlerFunc(p.read),
		below + "/": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fail(w, http.StatusNotFound, "not_found", "There is nothing at this address.")
		}),
	}
}

// Close closes the ledger.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.broken = errors.New("provider: closed")
	return p.ledger.file.Close()
}

// ServeHTTP serves the provider's API.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// maxKey limits a key, and maxBody a request's body, in bytes. The ledger has both of
// every charge, and forgets none.
const (
	maxKey  = 255
	maxBody = 4 << 10
)

func (p *Provider) create(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" || len(key) > maxKey {
		fail(w, http.StatusBadRequest, "invalid_key", "A charge needs an Idempotency-Key header of at most 255 bytes.")
		return
	}
	var want Charge
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&want); err != nil || want.Amount <= 0 || want.Currency == "" || want.Customer == "" {
		fail(w, http.StatusBadRequest, "invalid_request", "A charge needs an amount above 0, a currency and a customer.")
		return
	}
	if want.Customer == CustomerDeclined {
		fail(w, http.StatusPaymentRequired, "card_declined", "The card was declined.")
		return
	}
	want.ID, want.Key, want.Status = "", key, ""
	charge, booked, err := p.book(want)
	switch {
	case errors.Is(err, errKeyReused):
		fail(w, http.StatusUnprocessableEntity, "key_reused", "This Idempotency-Key was used with other parameters.")
		return
	case err != nil:
		fail(w, http.StatusInternalServerError, "ledger", "The charge could not be booked.")
		return
	}
	if booked && charge.Customer == CustomerSlow {
		p.opts.Slow(r.Context())
	}
	answer(w, http.StatusCreated, charge)
}

var errKeyReused = errors.New("provider: the key was used with other parameters")

// book returns the charge of want's key, and whether it is a new one.
func (p *Provider) book(want Charge) (charge Charge, booked bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.ledger.byKey[want.Key]; ok {
		charge = p.ledger.charges[i]
		if !sameParameters(charge, want) {
			return Charge{}, false, errKeyReused
		}
		return charge, false, nil
	}
	want.ID, want.Status = "ch_"+strings.ToLower(rand.Text()), "succeeded"
	return want, true, p.ledger.append(want)
}

// sameParameters compares the parameters that the caller set.
func sameParameters(a, b Charge) bool {
	return a.Amount == b.Amount && a.Currency == b.Currency && a.Customer == b.Customer && maps.Equal(a.Metadata, b.Metadata)
}

// Charges returns the ledger, the oldest charge first. The caller must not change
// it.
func (p *Provider) Charges() []Charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.charges[:len(p.ledger.charges):len(p.ledger.charges)]
}

func (p *Provider) list(w http.ResponseWriter, r *http.Request) {
	charges := p.Charges()
	p.mu.Lock()
	if r.URL.Query().Has("idempotency_key") {
		i, ok := p.ledger.byKey[r.URL.Query().Get("idempotency_key")]
		if ok {
			charges = charges[i : i+1]
		} else {
			charges = nil
		}
	}
	p.mu.Unlock()
	if charges == nil {
		charges = []Charge{} // an array, also if it is empty
	}
	answer(w, http.StatusOK, charges)
}

func (p *Provider) read(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	i, ok := p.ledger.byID[r.PathValue("id")]
	var charge Charge
	if ok {
		charge = p.ledger.charges[i]
	}
	p.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "no_such_charge", "There is no charge with that id.")
		return
	}
	answer(w, http.StatusOK, charge)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the caller has disconnected
}

func fail(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]any{"error": map[string]string{"code": code, "message": message}})
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Charge is one line of the ledger, and the provider's answer for it.
type Charge struct {
	ID       string            `json:"id"`
	Amount   int64             `json:"amount"` // in the currency's smallest unit
	Currency string            `json:"currency"`
	Customer string            `json:"customer"`
	Status   string            `json:"status"`
	Key      string            `json:"idempotency_key"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// ledger is the file of charges: JSON lines that are only ever appended. The
// caller must ensure that only one goroutine uses it at a time.
type ledger struct {
	file    *os.File
	size    int64 // of the complete lines
	broken  error // why nothing can be appended any more
	charges []Charge
	byKey   map[string]int
	byID    map[string]int
}

// openLedger reads the ledger in path, or creates an empty one.
func openLedger(path string) (*ledger, error) {
	_, statErr := os.Stat(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("provider: cannot open the ledger: %w", err)
	}
	l := &ledger{file: file, byKey: map[string]int{}, byID: map[string]int{}}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("provider: the ledger %s is held by another process; stop it, or choose another file: %w", path, err)
		return nil, errors.Join(err, file.Close())
	}
	if err := l.read(path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		// The name of a new file is durable only after its directory was
		// synced.
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return l, nil
}

// read reads all complete lines. An incomplete last line was being written when
// the process died. Its charge was never confirmed to a caller, so the line is
// cut off.
func (l *ledger) read(path string) error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("provider: cannot read the ledger: %w", err)
	}
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break
		}
		var c Charge
		if json.Unmarshal(line, &c) != nil || c.ID == "" || c.Key == "" {
			return fmt.Errorf("provider: line %d of the ledger %s is not a charge; restore the file, or move it away to start an empty one", n, path)
		}
		l.add(c)
		l.size += int64(len(line)) + 1
		data = rest
	}
	if len(data) > 0 {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("provider: cannot cut off the incomplete last line of the ledger: %w", err)
		}
	}
	return nil
}

func (l *ledger) add(c Charge) {
	l.byKey[c.Key], l.byID[c.ID] = len(l.charges), len(l.charges)
	l.charges = append(l.charges, c)
}

// append books c. If it returns nil, the charge is on disk.
func (l *ledger) append(c Charge) error {
	if l.broken != nil {
		return l.broken
	}
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := l.file.WriteAt(line, l.size); err != nil {
		if cut := l.file.Truncate(l.size); cut != nil {
			return l.fail(cut)
		}
		return err // for example a full disk: the ledger is unchanged
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(err) // it is unknown whether the line survives a crash
	}
	l.size += int64(len(line))
	l.add(c)
	return nil
}

// fail disables all further bookings.
func (l *ledger) fail(err error) error {
	l.broken = fmt.Errorf("provider: the ledger can no longer be written; restart to read what it contains: %w", err)
	return l.broken
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
