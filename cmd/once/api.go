// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/once-lambda/once/idempotent"
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
		"GET /api/overview":   s.overview,
		"GET /api/list":       s.list,
		"GET /api/record":     s.record,
		"POST /api/find":      s.find,
		"GET /api/price":      s.price,
		"POST /api/count":     s.count,
		"POST /api/resolve":   s.change(s.resolve),
		"POST /api/requeue":   s.change(s.requeue),
		"POST /api/forget":    s.change(s.forget),
	}
}

// overview answers with the first screen.
func (s *site) overview(w http.ResponseWriter, r *http.Request) {
	seen, err := s.look(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, struct {
		Store        string `json:"store"`
		AllowResolve bool   `json:"allow_resolve"`
		Operator     string `json:"operator"`
		*counts
	}{s.store.name, s.audit != nil, s.operator(), seen.counts()})
}

// operator returns who is in the lines of the audit.
func (s *site) operator() string {
	name := s.user + "@" + s.host
	if s.audit != nil && s.audit.aws != "" {
		name += ", " + s.audit.aws
	}
	return name
}

// list answers with a page of a list.
func (s *site) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	list := q.Get("list")
	offset, err := strconv.Atoi(q.Get("offset"))
	switch {
	case list != listUnknown && list != listExhausted && list != listResumable:
		err = usage("invalid list %q: want %s, %s or %s", list, listUnknown, listExhausted, listResumable)
	case err != nil || offset < 0:
		err = usage("invalid offset %q: want a number", q.Get("offset"))
	}
	var seen *waiting
	if err == nil {
		seen, err = s.look(r.Context())
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, seen.page(list, q.Get("operation"), offset))
}

// shownRecord is a record as the page shows it.
type shownRecord struct {
	Record  *view.Record `json:"record"`
	Version string       `json:"version"` // a change names it
	Now     view.Time    `json:"now"`
}

// record answers with one record, and with its results if they are asked for.
func (s *site) record(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id, err := idempotent.ParseRecordID(q.Get("id"))
	if err != nil {
		fail(w, usage("%v", err))
		return
	}
	found, err := s.store.Get(r.Context(), id)
	if err != nil {
		fail(w, err)
		return
	}
	v := view.Of(found, q["step"]...)
	if q.Get("results") == "true" {
		if err := (&showCmd{env: s.env}).addResults(r.Context(), s.store, found, v); err != nil {
			fail(w, err)
			return
		}
	}
	reply(w, http.StatusOK, shownRecord{v, versionOf(found), view.Time{Time: s.now()}})
}

// find answers with the id of a record. A client's key is in the body of the
// request, so that it is in no address, and it is not in the answer.
func (s *site) find(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Record string `json:"record"` // or the operation, with the other members
		Scope  string `json:"scope"`
		Global bool   `json:"global"`
		Key    string `json:"key"`
		Path   string `json:"path"`
	}
	if !readJSON(w, r, &in) {
		return
	}
	t := &target{scope: in.Scope, global: in.Global, key: in.Key, path: in.Path}
	found, err := t.find(r.Context(), s.env, s.store, in.Record)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]idempotent.RecordID{"record": found.ID})
}

// price answers with what a count of all records costs.
func (s *site) price(w http.ResponseWriter, r *http.Request) {
	bytes := s.store.bytes(r.Context())
	units := scanUnits(float64(bytes))
	reply(w, http.StatusOK, map[string]any{"items": s.store.items(r.Context()), "bytes": bytes, "read_units": units, "usd": units * readUnitUSD})
}

// count reads the whole store and answers as once stats does.
func (s *site) count(w http.ResponseWriter, r *http.Request) {
	if !s.counting.TryLock() {
		fail(w, refuse("another count is running"))
		return
	}
	defer s.counting.Unlock()
	counted, err := (&statsCmd{s.env}).count(r.Context(), s.store)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, counted)
}
