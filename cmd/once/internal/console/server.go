// SPDX-License-Identifier: Apache-2.0

// Package console serves the page of once console.
//
// Chapters, from the server to its answers:
//
//	server.go   the server, and what the page reads
//	orders.go   what the page changes
//	lists.go    the lists and counts that the page shows, and links to pages elsewhere
//	session.go  which requests the console accepts, and how it answers
package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/page"
	"github.com/once-lambda/once/internal/view"
)

const (
	// headerTimeout limits how long a browser may take to send the headers of a
	// request, and requestTimeout the whole request.
	headerTimeout  = 10 * time.Second
	requestTimeout = time.Minute
	// endTimeout is how long requests may take to end after Ctrl-C. Their contexts
	// end at once.
	endTimeout = 5 * time.Second
)

// Serve serves the console of a store on this machine until ctx ends. It passes to
// announce the address of the page, which works once. Port 0 is any that is free. Without
// an auditor the console is read-only.
func Serve(ctx context.Context, e *operate.Env, o operate.Store, a *operate.Auditor, l links, port int, announce func(address string) error) error {
	s := newSite(ctx, e, o, a, l)
	if _, err := s.look(ctx); err != nil { // whether the lists can be read
		return err
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("the console cannot listen: %w", err)
	}
	own, ticket := newSession(listener.Addr().String())
	if err := announce("http://" + own.host + "/#" + ticket); err != nil {
		return errors.Join(err, listener.Close())
	}
	return serve(ctx, e.Stderr, listener, s.handler(own))
}

// serve serves until ctx ends.
func serve(ctx context.Context, stderr io.Writer, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		ErrorLog:          log.New(stderr, "once: ", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("the console ended: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return errors.Join(fmt.Errorf("a request did not end: %w", err), server.Close())
	}
	return nil
}

// files are the page: index.html and what it loads, besides what package page has.
//
//go:embed page/*
var files embed.FS

// handler returns the handler of the console.
func (s *site) handler(own *session) http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range s.routes(own) {
		mux.HandleFunc(pattern, f)
	}
	return own.guard(mux)
}

// routes returns all that the console serves, by the patterns of [http.ServeMux]. No
// path changes anything by GET.
func (s *site) routes(own *session) map[string]http.HandlerFunc {
	assets, _ := fs.Sub(files, "page") // the name is valid
	return map[string]http.HandlerFunc{
		"/":                   page.Handler(assets).ServeHTTP,
		"POST " + sessionPath: own.open,
		"GET /api/overview":   answered(s.overview),
		"GET /api/list":       answered(s.list),
		"GET /api/record":     answered(s.record),
		"POST /api/find":      answered(s.find),
		"POST /api/search":    answered(s.searchFor),
		"GET /api/price":      answered(s.price),
		"POST /api/count":     answered(s.count),
		"POST /api/resolve":   s.change(s.resolve),
		"POST /api/settle":    s.change(s.settle),
		"POST /api/requeue":   s.change(s.requeue),
		"POST /api/forget":    s.change(s.forget),
	}
}

// overview returns the first screen.
func (s *site) overview(r *http.Request) (any, error) {
	seen, err := s.look(r.Context())
	if err != nil {
		return nil, err
	}
	return struct {
		Store        string `json:"store"`
		AllowResolve bool   `json:"allow_resolve"`
		Operator     string `json:"operator"`
		*counts
	}{s.store.Name(), s.audit != nil, s.operator(), seen.counts()}, nil
}

// operator returns who is in the lines of the audit.
func (s *site) operator() string {
	name := s.User + "@" + s.Host
	if s.audit != nil && s.audit.AWS != "" {
		name += ", " + s.audit.AWS
	}
	return name
}

// list returns a page of a list.
func (s *site) list(r *http.Request) (any, error) {
	q, err := parseListQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return s.page(r.Context(), q)
}

// parseListQuery returns the part of a list that a request asks for.
func parseListQuery(v url.Values) (q listQuery, err error) {
	q.list, q.operation, q.newest = v.Get("list"), v.Get("operation"), v.Get("order") == "newest"
	if !slices.Contains(lists, q.list) {
		return q, operate.Usage("invalid list %q: want one of %s", q.list, strings.Join(lists, ", "))
	}
	if q.offset, err = strconv.Atoi(v.Get("offset")); err != nil || q.offset < 0 {
		return q, operate.Usage("invalid offset %q: want a number", v.Get("offset"))
	}
	for name, at := range map[string]*time.Time{"from": &q.from, "to": &q.to} {
		if text := v.Get(name); text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return q, operate.Usage("invalid time %q: want a time like 2026-01-31T00:00:00Z", text)
			}
		}
	}
	return q, nil
}

// shownRecord is a record as the page shows it.
type shownRecord struct {
	Record  *view.Record `json:"record"`
	Version string       `json:"version"` // a change names it
	Links   []anchor     `json:"links,omitempty"`
	Now     view.Time    `json:"now"`
}

// record returns one record, and its results if they are asked for.
func (s *site) record(r *http.Request) (any, error) {
	q := r.URL.Query()
	id, err := idempotent.ParseRecordID(q.Get("id"))
	if err != nil {
		return nil, operate.Usage("%v", err)
	}
	found, err := s.store.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	v := view.Of(found, q["step"]...)
	if q.Get("results") == "true" {
		err = operate.AddResults(r.Context(), s.Env, s.store, found, v)
	}
	return shownRecord{v, versionOf(found), s.links.of(v), view.Time{Time: s.Now()}}, err
}

// find returns the id of a record. A client's key is in the body of the request, so
// that it is in no address, and it is not in the answer.
func (s *site) find(r *http.Request) (any, error) {
	var in struct {
		Record string `json:"record"` // or the operation, with the other members
		Scope  string `json:"scope"`
		Global bool   `json:"global"`
		Key    string `json:"key"`
		Path   string `json:"path"`
	}
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	t := &operate.Target{Scope: in.Scope, Global: in.Global, Key: in.Key, Path: in.Path}
	found, err := t.Find(r.Context(), s.Env, s.store, in.Record)
	if err != nil {
		return nil, err
	}
	return map[string]idempotent.RecordID{"record": found.ID}, nil
}

// price returns what a count of all records costs.
func (s *site) price(r *http.Request) (any, error) {
	items, bytes := s.store.Size(r.Context())
	units := operate.ScanUnits(float64(bytes))
	return map[string]any{"items": items, "bytes": bytes, "read_units": units, "usd": units * operate.ReadUnitUSD}, nil
}

// count reads the whole store and returns what once stats prints.
func (s *site) count(r *http.Request) (any, error) {
	return s.wholeStore(r.Context(), func(*driver.Record) {})
}

// searchFor returns how many records were found, which become a list.
func (s *site) searchFor(r *http.Request) (any, error) {
	var in search
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	if in.Ref == "" && in.Reason == "" {
		return nil, operate.Usage("enter a reference")
	}
	return s.search(r.Context(), in)
}
