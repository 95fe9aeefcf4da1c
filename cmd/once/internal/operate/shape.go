// SPDX-License-Identifier: Apache-2.0

// Package operate finds and changes records as an operator does. The commands of once
// and its console share it.
//
// Chapters, from a change of a record to the store:
//
//	shape.go         refuses results whose shape differs from the stored ones
//	resolve.go       writes evidence, discards an outcome, lets reconciliation ask again; for many records, too
//	find.go          finds a record, counts all records
//	evidence.go      evidence in the form that a record declares
//	confirmation.go  what an operator confirms before a write, and the line of audit for it
//	table.go         opens a file or a table; the store in a table
//	store.go         a store, and lists of its records
//	env.go           what a command works with; exit codes and advice
package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/view"
)

const (
	// shapeReads is how many records are read to find stored results, once for a
	// command, and shapePages in how many pages of a table: 1 MB each.
	shapeReads = 1000
	shapePages = 4
	// shapeSamples is how many stored results a result is compared with.
	shapeSamples = 10
	// shapeDepth is how many levels of a result are compared.
	shapeDepth = 6
	// shapeBytes is the size of a stored result, as stored, above which it is not
	// compared.
	shapeBytes = 256 << 10
	// maxDifferences is how many differences of a result are reported.
	maxDifferences = 5
)

// subject names results that should have one shape: those of an operation, and for
// HTTP those of one status.
type subject struct {
	operation string
	status    int
}

func (s subject) String() string {
	if s.status != 0 {
		return fmt.Sprintf("%s, status %d", output.OneLine(s.operation), s.status)
	}
	return output.OneLine(s.operation)
}

// subject returns what the result of a piece is compared with, and the result. It
// returns false for evidence without a result in JSON.
func (p Piece) subject() (s subject, result []byte, ok bool) {
	s.operation = p.Record.ID.Operation()
	switch p.Evidence.codec { // "" without a result
	case driver.DefaultCodec:
		return s, p.Evidence.data, true
	case httpform.Encoding:
		s.status = p.Evidence.reply.Status
		return s, p.Evidence.reply.Body, true
	}
	return s, nil, false
}

// Fit refuses evidence that the operation of the record could not replay.
func (c *Settler) Fit(ctx context.Context, o Store, p Piece) error {
	if err := p.Evidence.Fit(p.Record); err != nil {
		return err
	}
	return c.Compare(ctx, o, p)
}

// Compare refuses results whose shape differs from stored ones.
func (c *Settler) Compare(ctx context.Context, o Store, pieces ...Piece) error {
	wrong, err := c.Differing(ctx, o, pieces...)
	if wrong = slices.DeleteFunc(wrong, func(text string) bool { return text == "" }); len(wrong) == 0 {
		return err
	}
	return Refuse("%s\nNothing was written. Correct the result, or store it anyway with --force", Shown(wrong, "\n"))
}

// Differing returns for each piece how the shape of its result differs from stored
// ones, or "". It reports on standard error which results it could not compare.
func (c *Settler) Differing(ctx context.Context, o Store, pieces ...Piece) (wrong []string, err error) {
	wrong = make([]string, len(pieces))
	samples := newSamples()
	for _, p := range pieces {
		if s, _, ok := p.subject(); ok {
			samples.want(s)
		}
	}
	if c.Force || len(samples.shapes) == 0 {
		return wrong, nil
	}
	read, err := c.learn(ctx, o, samples)
	if err != nil {
		fmt.Fprintf(c.Stderr, "once: results are not compared with stored ones: %s\n", output.OneLine(err.Error()))
		return wrong, ctx.Err()
	}
	for _, s := range slices.SortedFunc(maps.Keys(samples.shapes), func(a, b subject) int { return strings.Compare(a.String(), b.String()) }) {
		if !samples.any(s) {
			fmt.Fprintf(c.Stderr, "once: not compared: no stored result of %s in %s\n", s, output.Count(read, "record"))
		}
	}
	for i, p := range pieces {
		s, result, ok := p.subject()
		if !ok || !samples.any(s) {
			continue
		}
		if difference := samples.compare(s, result); difference != "" {
			wrong[i] = fmt.Sprintf("%s: %s", output.Short(p.Record.ID), difference)
		}
	}
	return wrong, nil
}

// samples are what was learned of stored results.
type samples struct {
	shapes   map[subject]*shape     // of the subjects that are compared
	statuses map[string]map[int]int // of their operations: how many responses have each status
}

func newSamples() *samples {
	return &samples{map[subject]*shape{}, map[string]map[int]int{}}
}

// want adds a subject that is compared.
func (s *samples) want(of subject) {
	s.shapes[of], s.statuses[of.operation] = &shape{}, map[int]int{}
}

// missing reports whether more stored results are needed.
func (s *samples) missing() bool {
	for _, of := range s.shapes {
		if of.seen < shapeSamples {
			return true
		}
	}
	return false
}

// learn adds a stored result.
func (s *samples) learn(of subject, result []byte) {
	if statuses := s.statuses[of.operation]; statuses != nil && of.status != 0 {
		statuses[of.status]++
	}
	if shape := s.shapes[of]; shape != nil && shape.seen < shapeSamples {
		shape.learn(valueOf(result))
	}
}

// any reports whether there are stored results with which one of the subject can be
// compared: a response also with those of other statuses.
func (s *samples) any(of subject) bool {
	return s.shapes[of].seen > 0 || of.status != 0 && len(s.statuses[of.operation]) > 0
}

// compare returns how a result differs from the stored ones, or "".
func (s *samples) compare(of subject, result []byte) string {
	stored := s.shapes[of]
	if stored.seen == 0 {
		var others []string
		for _, status := range slices.Sorted(maps.Keys(s.statuses[of.operation])) {
			others = append(others, fmt.Sprintf("%d with %d", s.statuses[of.operation][status], status))
		}
		return fmt.Sprintf("%s has no stored response with the status %d, but %s", output.OneLine(of.operation), of.status, strings.Join(others, ", "))
	}
	if differences := stored.differences(valueOf(result)); len(differences) > 0 {
		return fmt.Sprintf("the result differs from %s of %s: %s", output.Count(stored.seen, "stored result"), of, strings.Join(differences, "; "))
	}
	return ""
}

// learn reads stored results of the subjects, and returns how many records it read.
func (c *Settler) learn(ctx context.Context, o Store, samples *samples) (read int, err error) {
	g := Guard(c.Env, o)
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := 0
	limit := func(dynamostore.ScanProgress) {
		if pages++; pages == shapePages {
			cancel()
		}
	}
	for r, err := range o.Scan(reading, func(opts *dynamostore.ScanOptions) { opts.Progress, opts.Segments = limit, 1 }) {
		if r.ID == "" {
			if reading.Err() != nil { // after enough pages, or an interruption
				err = ctx.Err()
			}
			return read, err
		}
		err = sample(ctx, g, &r, samples)
		if read++; err != nil || read == shapeReads || !samples.missing() {
			return read, err
		}
	}
	return read, nil
}

// sample learns the stored result of a record, if it has one in JSON.
func sample(ctx context.Context, g *idempotent.Guard, r *driver.Record, samples *samples) error {
	if view.ResultBytes(r) > shapeBytes {
		return nil
	}
	stored, err := view.OutcomeOf(ctx, g, r)
	if errors.As(err, new(*idempotent.StoreError)) {
		return err
	}
	if err != nil { // an unreadable record, or one without a readable result, is no example
		return nil
	}
	s, result := subject{operation: r.ID.Operation()}, []byte(stored.Result)
	if stored.Response != nil {
		s.status, result = stored.Response.Status, []byte(stored.Response.Body)
	}
	if stored.Result != nil || stored.Response != nil {
		samples.learn(s, result)
	}
	return nil
}

// notJSON stands for a result that is not JSON.
type notJSON struct{}

func valueOf(data []byte) (v any) {
	if json.Unmarshal(data, &v) != nil {
		return notJSON{}
	}
	return v
}

// shape is what several values in JSON have in common.
type shape struct {
	seen    int // values
	types   map[string]bool
	objects int
	members map[string]*shape
	items   *shape // of arrays
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "not JSON"
}

// learn adds a value to the shape.
func (s *shape) learn(v any) {
	if s.types == nil {
		s.types, s.members = map[string]bool{}, map[string]*shape{}
	}
	s.seen++
	s.types[typeOf(v)] = true
	switch v := v.(type) {
	case map[string]any:
		s.objects++
		for name, member := range v {
			if s.members[name] == nil {
				s.members[name] = &shape{}
			}
			s.members[name].learn(member)
		}
	case []any:
		if s.items == nil {
			s.items = &shape{}
		}
		for _, item := range v {
			s.items.learn(item)
		}
	}
}

// differences returns how a value differs from the shape.
func (s *shape) differences(v any) []string {
	found := s.compare("it", v, 0, nil)
	if n := len(found) - maxDifferences; n > 0 {
		found = append(found[:maxDifferences], fmt.Sprintf("%d more", n))
	}
	return found
}

func (s *shape) compare(path string, v any, depth int, found []string) []string {
	if !s.types[typeOf(v)] {
		return append(found, fmt.Sprintf("%s is %s, not %s", path, typeOf(v), strings.Join(slices.Sorted(maps.Keys(s.types)), " or ")))
	}
	if depth == shapeDepth {
		return found
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if member := s.members[name]; member != nil {
				found = member.compare(memberOf(path, name), v[name], depth+1, found)
			} else {
				found = append(found, "a member "+memberOf(path, name)+" is new")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.members)) {
			if _, has := v[name]; !has && s.members[name].seen == s.objects {
				found = append(found, "the member "+memberOf(path, name)+" is missing")
			}
		}
	case []any:
		for _, item := range v {
			if s.items.seen == 0 {
				break // the stored arrays are empty
			}
			if found = s.items.compare(path+"[]", item, depth+1, found); len(found) > 0 {
				break
			}
		}
	}
	return found
}

// memberOf returns the path of a member of the value at path.
func memberOf(path, name string) string {
	if name = output.OneLine(name); path != "it" {
		name = path + "." + name
	}
	return name
}
