// SPDX-License-Identifier: Apache-2.0

package playground

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

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/provider"
	"github.com/once-lambda/once/examples/charge-lambda/worker"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/page"
	"github.com/once-lambda/once/internal/view"
)

//go:embed index.html page.css page.js icon.svg
var files embed.FS

// Playground is what the page shows and acts on. All fields but Ledger are required.
type Playground struct {
	Profile   string // ietf, stripe or uuid: how the page spells a key
	Store     driver.Store
	History   *History
	Exchanges *Exchanges
	Workers   *worker.Pool
	Ledger    func() []provider.Charge // nil: the provider is elsewhere
	Done      <-chan struct{}          // closed when the server stops, which ends the streams
}

// Routes returns the playground's handlers, by the patterns of [http.ServeMux].
func (p *Playground) Routes() map[string]http.Handler {
	assets := page.Handler(files)
	return map[string]http.Handler{
		"GET /{$}":              assets,
		"/playground/":          http.StripPrefix("/playground", assets),
		"GET /playground/watch": page.Secure(http.HandlerFunc(p.watch)),
		"POST /playground/kill": page.Secure(p.Exchanges.Middleware(http.HandlerFunc(p.kill))),
	}
}

// snapshot is what the page shows for a key.
type snapshot struct {
	Now       time.Time         `json:"now"` // of the server
	Profile   string            `json:"profile"`
	Record    *view.Record      `json:"record"` // null: no record has the key
	History   []entry           `json:"history"`
	Exchanges []exchangeView    `json:"exchanges"`
	Ledger    []provider.Charge `json:"ledger"`  // the newest first; null: the provider is elsewhere
	Booked    int               `json:"booked"`  // all charges of the ledger
	OfKey     int               `json:"of_key"`  // charges of the key
	Workers   []workerView      `json:"workers"` // the oldest first
	Problem   string            `json:"problem,omitempty"`
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
	s := snapshot{Profile: p.Profile, History: p.History.log.of(id), Exchanges: p.Exchanges.of(key)}
	if p.Ledger != nil {
		s.Ledger = []provider.Charge{}
		charges := p.Ledger()
		s.Booked = len(charges)
		for i := range charges {
			c := charges[len(charges)-1-i]
			if c.Key == id.DownstreamKey() {
				s.OfKey++
			}
			if len(s.Ledger) < maxLedger {
				s.Ledger = append(s.Ledger, c)
			}
		}
	}
	for _, w := range p.Workers.Workers() {
		s.Workers = append(s.Workers, workerView{PID: w.PID, Busy: w.Event != nil, Mine: handles(w.Event, key)})
	}
	return s
}

// handles reports whether an event is a request with a key.
func handles(ev *events.APIGatewayV2HTTPRequest, key string) bool {
	return ev != nil && unquoted(ev.Headers["idempotency-key"]) == key
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
		reply(w, http.StatusBadRequest, map[string]any{"detail": fmt.Sprintf("The body has to be at most %d bytes.", maxText)})
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

// kill kills the worker that handles the request of a key, as soon as the provider
// has booked its charge. So the charge was made, and the worker cannot report it.
func (p *Playground) kill(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Key string `json:"idempotency_key"`
	}
	if data, err := readBody(w, r); err != nil || json.Unmarshal(data, &body) != nil || body.Key == "" {
		reply(w, http.StatusBadRequest, map[string]any{"detail": `The body has to be JSON like {"idempotency_key":"KEY"}.`})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), killPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s := p.look(body.Key)
		for _, found := range s.Workers {
			if found.Mine && (s.Ledger == nil || s.OfKey > 0) && p.Workers.Kill(found.PID) {
				p.History.killed(charge.RecordIDOf(body.Key), found.PID)
				reply(w, http.StatusOK, map[string]any{"killed": found.PID, "signal": "SIGKILL"})
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			reply(w, http.StatusNotFound, map[string]any{"detail": "No worker is charging for this key. Send the request first, to a slow provider."})
			return
		}
	}
}

// readBody reads a body of at most maxText bytes. The context of a request ends with its
// connection only once the whole body was read.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the client has gone
}
