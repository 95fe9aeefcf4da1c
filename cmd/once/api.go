// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/page"
	"github.com/once-lambda/once/internal/view"
)

// files are the page: index.html and what it loads, besides what package page has.
//
//go:embed console/*
var files embed.FS

// handler returns the handler of the console.
func (s *site) handler(d *door) http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range s.routes(d) {
		mux.HandleFunc(pattern, f)
	}
	return d.guard(mux)
}

// routes returns all that the console serves, by the patterns of [http.ServeMux]. No
// path changes anything by GET.
func (s *site) routes(d *door) map[string]http.HandlerFunc {
	own, _ := fs.Sub(files, "console") // the name is valid
	return map[string]http.HandlerFunc{
		"/":                   page.Handler(own).ServeHTTP,
		"POST " + sessionPath: d.session,
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
	}{s.store.name, s.audit != nil, s.operator(), seen.counts()}, nil
}

// operator returns who is in the lines of the audit.
func (s *site) operator() string {
	name := s.user + "@" + s.host
	if s.audit != nil && s.audit.aws != "" {
		name += ", " + s.audit.aws
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
		return q, usage("invalid list %q: want one of %s", q.list, strings.Join(lists, ", "))
	}
	if q.offset, err = strconv.Atoi(v.Get("offset")); err != nil || q.offset < 0 {
		return q, usage("invalid offset %q: want a number", v.Get("offset"))
	}
	for name, at := range map[string]*time.Time{"from": &q.from, "to": &q.to} {
		if text := v.Get(name); text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return q, usage("invalid time %q: want a time like 2026-01-31T00:00:00Z", text)
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
		return nil, usage("%v", err)
	}
	found, err := s.store.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	v := view.Of(found, q["step"]...)
	if q.Get("results") == "true" {
		err = (&showCmd{env: s.env}).addResults(r.Context(), s.store, found, v)
	}
	return shownRecord{v, versionOf(found), s.links.of(v), view.Time{Time: s.now()}}, err
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
	t := &target{scope: in.Scope, global: in.Global, key: in.Key, path: in.Path}
	found, err := t.find(r.Context(), s.env, s.store, in.Record)
	if err != nil {
		return nil, err
	}
	return map[string]idempotent.RecordID{"record": found.ID}, nil
}

// price returns what a count of all records costs.
func (s *site) price(r *http.Request) (any, error) {
	bytes := s.store.bytes(r.Context())
	units := scanUnits(float64(bytes))
	return map[string]any{"items": s.store.items(r.Context()), "bytes": bytes, "read_units": units, "usd": units * readUnitUSD}, nil
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
		return nil, usage("enter a reference")
	}
	return s.search(r.Context(), in)
}
