// SPDX-License-Identifier: Apache-2.0

// Package web serves a page that shows, live, what the example does with once
// and without: requests, the record of their key, the provider's ledgers, and the answers.
//
//	GET  /                                      the page
//	GET  /playground/watch?idempotency_key=KEY  what the page shows, as server-sent events
//	POST /playground/kill {"idempotency_key":"KEY"}
//	                                            kills the worker that handles the key's request
//	POST /without-once/kill                     the same for the half without once
//
// The half without once is the same function with its guard disabled, below the path
// /without-once. It has separate worker processes, and charges at a separate provider.
// The page sends each request to both halves, and each button does what the curl
// commands below it do. Requests from a terminal appear on the page too. It refuses
// no request by itself: it belongs behind [page.Guard], with all that listens there.
package web

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/page"
	"github.com/once-lambda/once/internal/view"
	"github.com/once-lambda/once/playground/provider"
	"github.com/once-lambda/once/playground/worker"
)

//go:embed index.html page.css page.js icon.svg
var files embed.FS

// Playground is what the page shows and acts on. All fields are required.
type Playground struct {
	Profile   string // ietf, stripe or uuid: how the page spells a key
	Store     driver.Store
	History   *History
	Exchanges *Exchanges
	With      Half            // the function, at "/"
	Without   Half            // the function with its guard disabled, below the path Without
	Done      <-chan struct{} // closed when the server stops, which ends the streams
}

// Half is the function with once, or without.
type Half struct {
	Workers *worker.Pool
	Ledger  func() []provider.Charge // nil: the provider is elsewhere
}

// Without is the path of the half without once.
const Without = "/without-once"

// Routes returns the playground's handlers, by the patterns of [http.ServeMux].
func (p *Playground) Routes() map[string]http.Handler {
	assets := page.Handler(files)
	return map[string]http.Handler{
		"GET /{$}":                  assets,
		"/playground/":              http.StripPrefix("/playground", assets),
		"GET /playground/watch":     page.Secure(http.HandlerFunc(p.watch)),
		"POST /playground/kill":     page.Secure(p.Exchanges.Middleware(p.kill(&p.With))),
		"POST " + Without + "/kill": page.Secure(p.Exchanges.Middleware(p.kill(&p.Without))),
	}
}

// snapshot is what the page shows for a key.
type snapshot struct {
	Now       time.Time      `json:"now"` // of the server
	Profile   string         `json:"profile"`
	Record    *view.Record   `json:"record"` // null: no record has the key
	History   []entry        `json:"history"`
	Exchanges []exchangeView `json:"exchanges"`
	With      halfView       `json:"with"`
	Without   halfView       `json:"without"`
	Problem   string         `json:"problem,omitempty"`
}

// halfView is a half as the page shows it for a key.
type halfView struct {
	Ledger  []provider.Charge `json:"ledger"`  // the newest charges of the key, the newest first; null: the provider is elsewhere
	Booked  int               `json:"booked"`  // all charges of all keys
	OfKey   int               `json:"of_key"`  // all charges of the key
	Amounts map[string]int64  `json:"amounts"` // their sums, by currency
	Workers []workerView      `json:"workers"` // the oldest first
}

type workerView struct {
	PID  int  `json:"pid"`
	Busy bool `json:"busy"`
	Mine bool `json:"mine"` // it handles a request with the key
}

// maxLedger limits the charges that the page gets.
const maxLedger = 8

// look returns what the page shows besides the record.
func (p *Playground) look(key string) snapshot {
	id := charge.RecordIDOf(key)
	return snapshot{Profile: p.Profile, History: p.History.log.of(id), Exchanges: p.Exchanges.of(key), With: p.With.look(key), Without: p.Without.look(key)}
}

// look returns what the page shows of h. The provider got the id of a record with each
// charge. The downstream key is random without a guard.
func (h *Half) look(key string) halfView {
	v, id := halfView{Amounts: map[string]int64{}}, string(charge.RecordIDOf(key))
	if h.Ledger != nil {
		v.Ledger = []provider.Charge{}
		charges := h.Ledger()
		v.Booked = len(charges)
		for _, c := range slices.Backward(charges) {
			if c.Metadata[charge.MetadataRecord] != id {
				continue
			}
			v.OfKey++
			v.Amounts[c.Currency] += c.Amount
			if len(v.Ledger) < maxLedger {
				v.Ledger = append(v.Ledger, c)
			}
		}
	}
	for _, w := range h.Workers.Workers() {
		v.Workers = append(v.Workers, workerView{PID: w.PID, Busy: w.Event != nil, Mine: w.Event != nil && KeyOf(w.Event) == key})
	}
	return v
}

// watchInterval is how often the stream looks for a change. The store is asked after
// each write of this program, and once a second: other programs can write to a table.
const (
	watchInterval = 50 * time.Millisecond
	readInterval  = time.Second
)

// watch sends a snapshot at once, and after each change.
func (p *Playground) watch(w http.ResponseWriter, r *http.Request) {
	if _, err := readBody(w, r); err != nil {
		page.Reply(w, http.StatusBadRequest, map[string]any{"detail": fmt.Sprintf("The body has to be at most %d bytes.", maxText)})
		return
	}
	key := r.URL.Query().Get("idempotency_key")
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var last []byte
	var stored snapshot // its record, and the history at the time of its reading
	var read time.Time
	for {
		s := p.look(key)
		if !slices.Equal(s.History, stored.History) || time.Since(read) >= readInterval {
			read, stored = time.Now(), s
			stored.Record, stored.Problem = p.record(r.Context(), key)
		}
		s.Record, s.Problem = stored.Record, stored.Problem
		now, err := json.Marshal(s)
		if err != nil {
			return // the record has a value that JSON does not have
		}
		if !bytes.Equal(now, last) {
			last = now
			s.Now = time.Now().UTC()
			data, _ := json.Marshal(s) // it was encoded before
			if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-p.Done:
			return
		}
	}
}

func (p *Playground) record(ctx context.Context, key string) (r *view.Record, problem string) {
	stored, err := p.Store.Get(ctx, charge.RecordIDOf(key))
	switch {
	case err == nil:
		return view.Of(stored), ""
	case errors.Is(err, driver.ErrNoRecord):
		return nil, ""
	}
	return nil, "The store is not available."
}

// killPatience limits how long kill waits for its moment.
const killPatience = 5 * time.Second

// kill kills the worker of h that handles the request of a key, as soon as the provider
// has booked a charge of it. So the charge was made, and the worker cannot report it.
func (p *Playground) kill(h *Half) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Key string `json:"idempotency_key"`
		}
		if data, err := readBody(w, r); err != nil || json.Unmarshal(data, &body) != nil || body.Key == "" {
			page.Reply(w, http.StatusBadRequest, map[string]any{"detail": `The body has to be JSON like {"idempotency_key":"KEY"}.`})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), killPatience)
		defer cancel()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			v := h.look(body.Key)
			for _, found := range v.Workers {
				if found.Mine && (v.Ledger == nil || v.OfKey > 0) && h.Workers.Kill(found.PID) {
					if h == &p.With {
						p.History.killed(charge.RecordIDOf(body.Key), found.PID)
					}
					page.Reply(w, http.StatusOK, map[string]any{"killed": found.PID, "signal": "SIGKILL"})
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				page.Reply(w, http.StatusNotFound, map[string]any{"detail": "No worker is charging for this key. Send the request first, to a slow provider."})
				return
			}
		}
	}
}

// readBody reads a body of at most maxText bytes. The context of a request ends with its
// connection only once the whole body was read.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
}
