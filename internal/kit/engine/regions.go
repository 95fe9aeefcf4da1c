// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/internal/kit"
)

// [Strong] and [Eventual] simulate DynamoDB global tables: clients of several regions,
// over tables in memory.
//
// A comment in quotation marks is a sentence of AWS: "How DynamoDB global tables
// work" in the Amazon DynamoDB developer guide. What AWS does not state is marked as
// assumed.
//
// A table has the layout of a store's table: the partition key pk, and no sort key.
// Package testing/synctest makes latency and lag simulated time.

// The facts that a [Strong] counts in Seen.
const (
	FactWrites    = "writes that were applied"
	FactConflicts = "writes rejected, because another region modifies the item"
	FactLost      = "replies lost"
	FactCut       = "calls refused in a region that was cut off"
)

// ErrLost is the error of a call whose reply was lost. The call may be applied.
var ErrLost = errors.New("engine: the reply was lost")

// Strong is a global table with multi-Region strong consistency. All regions share
// one table: "Conditional writes always evaluate the condition expression against the
// latest version of an item", and "strongly consistent read operations on any MRSC
// replica always return the latest version".
type Strong struct {
	// DB is the table itself. It is never cut off.
	DB   *dynamotest.DB
	Seen kit.Tally

	faults Faults
	mu     sync.Mutex
	random *rand.Rand
	cut    [3]bool
	held   map[string]*hold // by item, while a write of it is not yet acknowledged
}

// hold is an item that writes of one region modify.
type hold struct{ region, writes int }

// Faults are what goes wrong in a [Strong]. The zero value injects no fault.
type Faults struct {
	Seed uint64
	// Latency is the longest time that a request takes to the table, and the longest
	// time that its reply takes. Zero: a call only lets other goroutines run.
	Latency time.Duration
	// Conflicts is the share of writes that are rejected although no other write is in
	// transit. Assumed: the change of another region is not replicated to this one yet.
	Conflicts float64
	// Lost is the share of calls whose reply is lost.
	Lost float64
}

// NewStrong returns empty global tables of these names. [dynamotest.DB] refuses what
// they do not have: "Time to Live (TTL) is not supported for MRSC global tables", and
// they "do not support transaction operations, and will return an error".
func NewStrong(faults Faults, tables ...string) *Strong {
	g := &Strong{DB: dynamotest.New(tables...), faults: faults, random: rand.New(rand.NewPCG(faults.Seed, 0)), held: map[string]*hold{}}
	off := &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(false)}
	for _, table := range tables {
		_, err := g.DB.UpdateTimeToLive(context.Background(), &dynamodb.UpdateTimeToLiveInput{TableName: &table, TimeToLiveSpecification: off})
		if err == nil {
			in := &dynamodb.UpdateTableInput{TableName: &table, MultiRegionConsistency: types.MultiRegionConsistencyStrong}
			for _, other := range []string{"us-east-2", "us-west-2"} {
				create := &types.CreateReplicationGroupMemberAction{RegionName: &other}
				in.ReplicaUpdates = append(in.ReplicaUpdates, types.ReplicationGroupUpdate{Create: create})
			}
			_, err = g.DB.UpdateTable(context.Background(), in)
		}
		if err != nil {
			panic(err)
		}
	}
	return g
}

// Client returns the client of a region: 0, 1 or 2.
func (g *Strong) Client(region int) dynamostore.Client {
	return dynamotest.Intercept(g.DB, func(ctx context.Context, c *dynamotest.Call) { g.call(ctx, region, c) })
}

// CutOff cuts a region off from the others, or heals it.
func (g *Strong) CutOff(region int, cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut[region] = cut
}

func (g *Strong) call(ctx context.Context, region int, c *dynamotest.Call) {
	g.wait()
	defer g.wait()
	if ctx.Err() != nil {
		c.Err = ctx.Err()
		return
	}
	if !g.reaches(region, c) {
		c.Err = &types.InternalServerError{Message: aws.String("the region is cut off")} // assumed: this error
		return
	}
	written := items(c.In)
	if !g.holds(region, written) {
		c.Err = &types.ReplicatedWriteConflictException{Message: aws.String("modified by a request in another Region")}
		return
	}
	// "Item changes in an MRSC global table replica are synchronously replicated to at
	// least one other Region before the write operation returns a successful response":
	// the reply is late, and the item is held until then.
	defer g.releases(written)
	if c.Do(ctx); len(written) > 0 && c.Err == nil {
		g.Seen.Add(FactWrites, 1)
	}
	g.wait()
	if g.draw() < g.faults.Lost {
		g.Seen.Add(FactLost, 1)
		c.Out, c.Err = nil, ErrLost
	}
}

// reaches reports whether a call in a region is served. While a region is isolated,
// "eventually consistent reads are permitted". That writes and strongly consistent
// reads fail then is assumed.
func (g *Strong) reaches(region int, c *dynamotest.Call) bool {
	switch in := c.In.(type) {
	case *dynamodb.QueryInput:
		return true // of an index: always eventually consistent
	case *dynamodb.ScanInput:
		if !aws.ToBool(in.ConsistentRead) {
			return true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut[region] {
		g.Seen.Add(FactCut, 1)
	}
	return !g.cut[region]
}

// holds begins the writes of a call. "A write operation fails with a
// ReplicatedWriteConflictException when it attempts to modify an item that is already
// being modified in another Region." Assumed: a batch fails as a whole.
func (g *Strong) holds(region int, written []ref) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	conflict := len(written) == 1 && g.random.Float64() < g.faults.Conflicts
	for _, it := range written {
		h := g.held[it.String()]
		conflict = conflict || h != nil && h.region != region
	}
	if conflict {
		g.Seen.Add(FactConflicts, 1)
		return false
	}
	for _, it := range written {
		if g.held[it.String()] == nil {
			g.held[it.String()] = &hold{region: region}
		}
		g.held[it.String()].writes++
	}
	return true
}

func (g *Strong) releases(written []ref) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, it := range written {
		if h := g.held[it.String()]; h.writes > 1 {
			h.writes--
		} else {
			delete(g.held, it.String())
		}
	}
}

// wait lets others come first, for at most the latency.
func (g *Strong) wait() {
	if g.faults.Latency == 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(time.Duration(g.draw() * float64(g.faults.Latency)))
}

// draw returns a number below 1.
func (g *Strong) draw() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.random.Float64()
}

// Eventual is a global table with multi-Region eventual consistency: each region has
// its own copy. "Conditional writes evaluate the condition expression against the
// version of the item in the Region", and a strongly consistent read "may return stale
// data if the item was last updated in a different Region".
type Eventual struct {
	// Lag is how long a change takes to another region. "Item changes in an MREC global
	// table replica are asynchronously replicated to all other replicas, typically within
	// a second or less."
	Lag time.Duration

	mu      sync.Mutex
	copies  []*dynamotest.DB
	clock   int            // "the latest internal timestamp"; assumed: all regions have one clock
	written map[string]int // the timestamp of the last change, by region and item
}

// NewEventual returns an empty global table of that name with two regions.
func NewEventual(table string, lag time.Duration) *Eventual {
	return &Eventual{Lag: lag, copies: []*dynamotest.DB{dynamotest.New(table), dynamotest.New(table)}, written: map[string]int{}}
}

// Client returns the client of a region: 0 or 1.
func (g *Eventual) Client(region int) dynamostore.Client {
	return dynamotest.Intercept(g.copies[region], func(ctx context.Context, c *dynamotest.Call) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.Do(ctx); c.Err != nil {
			return
		}
		for _, it := range items(c.In) {
			g.clock++
			g.written[it.in(region)] = g.clock
			change, at := g.read(region, it), g.clock
			// Changes of one transaction travel one by one: "Transactional writes are not
			// replicated as a unit across Regions."
			time.AfterFunc(g.Lag, func() { g.arrive(1-region, it, change, at) })
		}
	})
}

// arrive applies a change of the other region, unless the item has changed later:
// "last writer wins".
func (g *Eventual) arrive(region int, it ref, change map[string]types.AttributeValue, at int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.written[it.in(region)] > at {
		return
	}
	g.written[it.in(region)] = at
	var err error
	if change == nil {
		_, err = g.copies[region].DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: &it.table, Key: it.key()})
	} else {
		_, err = g.copies[region].PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &it.table, Item: change})
	}
	if err != nil {
		panic(err)
	}
}

// read returns the item of a region, or nil.
func (g *Eventual) read(region int, it ref) map[string]types.AttributeValue {
	out, err := g.copies[region].GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &it.table, Key: it.key(), ConsistentRead: aws.Bool(true)})
	if err != nil {
		panic(err)
	}
	return out.Item
}

// ref names an item.
type ref struct{ table, pk string }

func (it ref) String() string       { return it.table + "/" + it.pk }
func (it ref) in(region int) string { return fmt.Sprint(region, it) }

func (it ref) key() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: it.pk}}
}

// items returns the items that a call writes, each once.
func items(in any) (all []ref) {
	add := func(table *string, key map[string]types.AttributeValue) {
		if pk, ok := key["pk"].(*types.AttributeValueMemberS); ok {
			all = append(all, ref{aws.ToString(table), pk.Value})
		}
	}
	switch in := in.(type) {
	case *dynamodb.PutItemInput:
		add(in.TableName, in.Item)
	case *dynamodb.DeleteItemInput:
		add(in.TableName, in.Key)
	case *dynamodb.BatchWriteItemInput:
		for table, writes := range in.RequestItems {
			for _, w := range writes {
				if w.PutRequest != nil {
					add(&table, w.PutRequest.Item)
				} else {
					add(&table, w.DeleteRequest.Key)
				}
			}
		}
	case *dynamodb.TransactWriteItemsInput:
		for _, w := range in.TransactItems {
			switch {
			case w.Put != nil:
				add(w.Put.TableName, w.Put.Item)
			case w.Delete != nil:
				add(w.Delete.TableName, w.Delete.Key)
			case w.Update != nil:
				add(w.Update.TableName, w.Update.Key)
			}
		}
	}
	return all
}
