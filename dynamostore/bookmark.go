// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

const (
	// saveTimeout is the time to write a bookmark after the end of the context.
	saveTimeout = 5 * time.Second
	// longestRead is how long a call reads, and reserves the scan for itself, at most.
	longestRead = 15 * time.Minute
)

// bookmark is where a pass over the table is. Its item is in the table, under a
// key that no record and no chunk can have:
//
//	pk       the prefix + #scan
//	v        format version
//	wid      write id
//	began    when the pass began, in milliseconds since 1970
//	ended    when the last pass ended that is complete
//	pause    how many milliseconds after that the next pass begins
//	found    whether the pass has found a record
//	until    when the reservation of the call that reads ends
//	next     for each segment the key after which it continues, empty at its start,
//	         null at its end
type bookmark struct {
	was      types.AttributeValue // the write id of the item; nil: it is missing
	began    time.Time
	ended    time.Time // zero: no pass has ended
	pause    time.Duration
	found    bool
	reserved time.Time
	starts   []item // nil: the segment is done
	wrong    string // why a new pass replaces it; empty: it is right
}

// done reports whether there is no pass that could continue.
func (m *bookmark) done() bool {
	for _, start := range m.starts {
		if start != nil {
			return false
		}
	}
	return true
}

// begin begins a pass in that many segments.
func (m *bookmark) begin(now time.Time, segments int) {
	m.began, m.found, m.reserved, m.starts = now, false, time.Time{}, make([]item, segments)
	for i := range m.starts {
		m.starts[i] = item{}
	}
}

// end ends the pass, and sets the pause until the next one.
func (m *bookmark) end(now time.Time, shortest, longest time.Duration) {
	m.ended = now
	switch {
	case m.found:
		m.pause = shortest
	case m.pause == 0:
		m.pause = longest
	default:
		m.pause = min(2*m.pause, longest)
	}
}

// maxAhead is how far ahead the clock of the call that wrote a bookmark can be.
const maxAhead = time.Minute

// problem returns why the bookmark cannot be used at now: it is damaged, or one of its
// times would stop the scan until then.
func (m *bookmark) problem(now time.Time) string {
	switch {
	case m.wrong != "":
		return m.wrong
	case m.began.After(now.Add(maxAhead)):
		return "its pass began in the future"
	case m.ended.After(now.Add(maxAhead)):
		return "its last pass ended in the future"
	case m.reserved.After(now.Add(longestRead + saveTimeout + maxAhead)):
		return "it is reserved for longer than a call can read"
	}
	return ""
}

func (m *bookmark) scanned(now time.Time, every time.Duration) driver.Scanned {
	return driver.Scanned{Began: m.began, Ended: m.ended, Late: !m.done() && now.Sub(m.began) > every, Replaced: m.wrong}
}

// bookmark reads the bookmark. One that is damaged is returned with what is wrong,
// and one of a later format version is an error.
func (s *Store) bookmark(ctx context.Context) (*bookmark, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(s.table), Key: s.layout.keyOf(tabledef.ScanKey)})
	if err != nil {
		return nil, s.explain("GetItem", err)
	}
	m := &bookmark{}
	if len(out.Item) == 0 {
		return m, nil
	}
	d := decoder{kind: "bookmark of the scan", item: out.Item}
	if d.format(); d.err != nil && isNumber(out.Item[attrFormat]) {
		return nil, d.err
	}
	d.bytes(attrVersion, required)
	m.was = out.Item[attrVersion]
	m.began, m.reserved = d.time(attrBegan, required), d.time(attrReserved, optional)
	m.ended, m.pause, m.found = d.time(attrEnded, optional), d.duration(attrPause), d.flag(attrFound)
	list, _ := out.Item[attrStarts].(*types.AttributeValueMemberL)
	if list == nil {
		d.fail(attrStarts, "is not a list")
		list = &types.AttributeValueMemberL{}
	}
	for _, value := range list.Value {
		start, ok := s.layout.start(value)
		if !ok {
			d.fail(attrStarts, "has an entry that is no key of the table")
		}
		m.starts = append(m.starts, start)
	}
	if d.err != nil {
		m.ended, m.pause, m.wrong = time.Time{}, 0, d.err.Error()
	}
	return m, nil
}

func isNumber(value types.AttributeValue) bool {
	_, ok := value.(*types.AttributeValueMemberN)
	return ok
}

// start returns the key after which a segment continues: empty at its start, nil at
// its end.
func (l *layout) start(value types.AttributeValue) (start item, ok bool) {
	switch v := value.(type) {
	case *types.AttributeValueMemberNULL:
		return nil, true
	case *types.AttributeValueMemberM:
		for name := range l.keyOf(tabledef.ScanKey) {
			if _, isText := v.Value[name].(*types.AttributeValueMemberS); !isText && len(v.Value) > 0 {
				return nil, false
			}
		}
		return v.Value, len(v.Value) == 0 || len(v.Value) == len(l.keyOf(tabledef.ScanKey))
	}
	return nil, false
}

// putBookmark writes the bookmark and reports whether no other call had written it
// since it was read. As with records, a refusal that returns this very write is a
// success whose first reply was lost.
func (s *Store) putBookmark(ctx context.Context, m *bookmark) (mine bool, err error) {
	id := make([]byte, len(driver.Version{}))
	rand.Read(id)
	starts := make([]types.AttributeValue, len(m.starts))
	for i, start := range m.starts {
		starts[i] = &types.AttributeValueMemberNULL{Value: true}
		if start != nil {
			starts[i] = &types.AttributeValueMemberM{Value: start}
		}
	}
	it := item{
		attrFormat:  &types.AttributeValueMemberN{Value: formatVersion},
		attrVersion: &types.AttributeValueMemberB{Value: id},
		attrStarts:  &types.AttributeValueMemberL{Value: starts},
	}
	s.layout.place(it, tabledef.ScanKey)
	v := newValues()
	v.putTime(it, attrBegan, m.began)
	v.putTime(it, attrEnded, m.ended)
	v.putDuration(it, attrPause, m.pause)
	if m.found {
		it[attrFound] = &types.AttributeValueMemberBOOL{Value: true}
	}
	v.putTime(it, attrReserved, m.reserved)
	v.write()
	in := &dynamodb.PutItemInput{
		TableName:                 aws.String(s.table),
		Item:                      it,
		ConditionExpression:       aws.String(bookmarkCondition),
		ExpressionAttributeValues: item{":was": cmp.Or[types.AttributeValue](m.was, &types.AttributeValueMemberB{Value: []byte{}})},

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	err = s.persist(ctx, func() error { // a reconciler of another region may write it
		_, err := s.client.PutItem(ctx, in)
		return err
	})
	if failed, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		if standing, _ := failed.Item[attrVersion].(*types.AttributeValueMemberB); standing == nil || !bytes.Equal(standing.Value, id) {
			return false, nil
		}
	} else if err != nil {
		return false, s.explain("PutItem", err)
	}
	m.was = &types.AttributeValueMemberB{Value: id}
	return true, nil
}

// pace spreads the calls for all segments over the time.
type pace struct {
	units float64       // of a usual call
	every time.Duration // between two usual calls

	mu   sync.Mutex
	next time.Time // of the next call
}

// wait waits until the next call may be made, and reports whether the time of ctx
// is enough for that.
func (p *pace) wait(ctx context.Context) bool {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	delay := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	p.mu.Unlock()
	return timeLeft(ctx) > delay && sleep(ctx, delay) == nil
}

// spent corrects the time of the next call after one that took other units. A reply
// without its units is that of a usual call.
func (p *pace) spent(c *types.ConsumedCapacity) {
	if c == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.next.Add(-time.Duration(float64(p.every) * (1 - unitsOf(c)/p.units)))
}

// timeLeft returns the time until the deadline of ctx, which has one.
func timeLeft(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline)
}

// unlessEnded returns the error of a request, or nil if ctx has ended: what that cuts
// off is repeated by the next call.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
