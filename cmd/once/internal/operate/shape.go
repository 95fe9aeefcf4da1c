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

// subject names results that should have one shape: those of an operation, of one of
// its steps, or for HTTP those of one status.
type subject struct {
	operation, step string
	status          int
}

func (s subject) String() string {
	if s.step == "" && s.status == 0 {
		return output.OneLine(s.operation)
	}
	return output.OneLine(s.operation) + ", " + s.part()
}

// part names the step or the status.
func (s subject) part() string {
	if s.step != "" {
		return "step " + output.OneLine(s.step)
	}
	return fmt.Sprintf("status %d", s.status)
}

// family returns the name that steps like ship/1 and ship/2 have in common.
func family(step string) string {
	name, _, _ := strings.Cut(step, "/")
	return name
}

// alike reports whether results of the two, of one operation, can be compared: both are of
// steps, or both are HTTP responses, or neither.
func (s subject) alike(other subject) bool {
	return (s.step == "") == (other.step == "") && (s.status == 0) == (other.status == 0)
}

// subject returns what the result of a piece is compared with, and the result. It
// returns false for evidence without a result in JSON.
func (p Piece) subject() (s subject, result []byte, ok bool) {
	s.operation, s.step = p.Record.ID.Operation(), family(p.Evidence.Step)
	switch {
	case s.step != "", p.Evidence.codec == driver.DefaultCodec:
		return s, p.Evidence.data, true
	case p.Evidence.codec == httpform.Encoding:
		s.status = p.Evidence.reply.Status
		return s, p.Evidence.reply.Body, true
	}
	return s, nil, false // "" is the codec of evidence without a result
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
			samples.settled[p.Record.ID] = true
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
		if len(samples.countsFor(s)) == 0 {
			fmt.Fprintf(c.Stderr, "once: not compared: no stored result of %s in %s\n", s, output.Count(read, "record"))
		}
	}
	for i, p := range pieces {
		s, result, ok := p.subject()
		if !ok || len(samples.countsFor(s)) == 0 || samples.shapes[s].seen == 0 && len(p.Record.StepNames) > 0 {
			continue // the guard compares a name with those that the operation declares
		}
		if difference := samples.compare(s, result); difference != "" {
			wrong[i] = fmt.Sprintf("%s: %s", output.Short(p.Record.ID), difference)
		}
	}
	return wrong, nil
}

// samples are what was learned of stored results.
type samples struct {
	shapes  map[subject]*shape           // of the subjects that are compared
	counts  map[string]map[subject]int   // of their operations: how many results each subject has
	settled map[idempotent.RecordID]bool // by this command: their steps are no samples
}

func newSamples() *samples {
	return &samples{map[subject]*shape{}, map[string]map[subject]int{}, map[idempotent.RecordID]bool{}}
}

// want adds a subject that is compared.
func (s *samples) want(of subject) {
	s.shapes[of], s.counts[of.operation] = &shape{}, map[subject]int{}
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
	if counts := s.counts[of.operation]; counts != nil {
		counts[of]++
	}
	if shape := s.shapes[of]; shape != nil && shape.seen < shapeSamples {
		shape.learn(valueOf(result))
	}
}

// countsFor returns how many stored results there are with which one of the subject can
// be compared: that of a step with those of all steps, a response with all responses.
func (s *samples) countsFor(with subject) map[subject]int {
	found := maps.Clone(s.counts[with.operation])
	maps.DeleteFunc(found, func(of subject, _ int) bool { return !of.alike(with) })
	return found
}

// compare returns how a result differs from the stored ones, or "".
func (s *samples) compare(of subject, result []byte) string {
	if stored := s.shapes[of]; stored.seen > 0 {
		if differences := stored.differences(valueOf(result)); len(differences) > 0 {
			return fmt.Sprintf("the result differs from %s of %s: %s", output.Count(stored.seen, "stored result"), of, strings.Join(differences, "; "))
		}
		return ""
	}
	var others []string
	for other, n := range s.countsFor(of) {
		others = append(others, fmt.Sprintf("%d of %s", n, other.part()))
	}
	slices.Sort(others)
	return fmt.Sprintf("%s has no stored result of %s, but %s", output.OneLine(of.operation), of.part(), strings.Join(others, ", "))
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

// sample learns the stored results in JSON of a record and of its steps.
func sample(ctx context.Context, g *idempotent.Guard, r *driver.Record, samples *samples) error {
	of := subject{operation: r.ID.Operation()}
	if samples.counts[of.operation] == nil {
		return nil
	}
	if !samples.settled[r.ID] {
		sampleSteps(ctx, g.Pending(*r), samples)
	}
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
	result := []byte(stored.Result)
	if stored.Response != nil {
		of.status, result = stored.Response.Status, []byte(stored.Response.Body)
	}
	if stored.Result != nil || stored.Response != nil {
		samples.learn(of, result)
	}
	return nil
}

// sampleSteps learns the results of the finished steps that can be read.
func sampleSteps(ctx context.Context, r idempotent.PendingRecord, samples *samples) {
	for _, step := range r.Stored().Steps {
		var result json.RawMessage
		if _, err := r.Step(ctx, step.Name, &result); err == nil && result != nil && len(result) <= shapeBytes {
			samples.learn(subject{operation: r.ID.Operation(), step: family(step.Name)}, result)
		}
	}
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
