// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/internal/tabledef"
)

// vitals is what a client process holds.
type vitals struct {
	Heap       int // bytes, after a collection
	Goroutines int
	Files      int
}

// readVitals measures this process.
func readVitals() (v vitals, err error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	return vitals{int(m.HeapAlloc), runtime.NumGoroutine(), len(files)}, err
}

// sample is what there was at one time of a storm.
type sample struct {
	at time.Duration // since the beginning
	vitals
	items, keys int // in the table, and that were used
}

func (s sample) String() string {
	return fmt.Sprintf("after %s: %d KB of heap, %d goroutines, %d files; %d items of %d keys", s.at.Round(time.Second), s.Heap>>10, s.Goroutines, s.Files, s.items, s.keys)
}

// settling is how long a storm may change what the elder and the table hold: ten minutes, or a
// third of a shorter one.
func settling(length time.Duration) time.Duration { return min(10*time.Minute, length/3) }

// passes returns the pause between two passes over the table of a storm of that length. A pass
// takes the longer the more items there are: DynamoDB Local reads 68,000 in one to five minutes,
// and serves other calls slowly meanwhile.
func passes(length time.Duration) time.Duration { return max(scanEvery, settling(length)/4) }

// compared returns the first sample after the storm has settled and the last one, or fewer.
func compared(samples []sample, settled time.Duration) []sample {
	first := slices.IndexFunc(samples, func(s sample) bool { return s.at >= settled && s.items > 0 })
	if first < 0 || first == len(samples)-1 {
		return nil
	}
	return []sample{samples[first], samples[len(samples)-1]}
}

// grown says what the last sample has more of than the first one after the storm has settled.
func grown(samples []sample, settled time.Duration) (violations []string) {
	two := compared(samples, settled)
	if two == nil {
		return []string{fmt.Sprintf("the elder was asked %d times, so nothing can be compared", len(samples))}
	}
	a, b := two[0], two[1]
	for _, c := range []struct {
		what         string
		before, now  float64
		least, times float64 // what b may have anyway, and how many times as much as a
	}{
		{"bytes of heap", float64(a.Heap), float64(b.Heap), 8 << 20, 1.5},
		{"goroutines", float64(a.Goroutines), float64(b.Goroutines), 30, 1.5},
		{"files", float64(a.Files), float64(b.Files), 30, 1.5},
		{"items for each key", float64(a.items) / float64(max(1, a.keys)), float64(b.items) / float64(max(1, b.keys)), 2, 1.3},
	} {
		if c.now > max(c.least, c.times*c.before) {
			violations = append(violations, fmt.Sprintf("%s grew from %.1f to %.1f: %s; %s", c.what, c.before, c.now, a, b))
		}
	}
	return violations
}

// elder runs one client process that the storm never kills or stops, and asks it now and then what it
// holds. It gets no request whose process may have to be killed.
func (s *storm) elder(ctx context.Context, r *randv2.Rand) {
	c, err := start("elder", s.settings, s.provider.died)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer c.kill()
	fenced := slices.DeleteFunc(slices.Clone(promises), promise.unfenced)
	began := time.Now()
	for n, asked := 0, began; ctx.Err() == nil; n++ {
		q := s.draw(r, fenced)
		if time.Since(asked) > time.Second {
			q, asked = request{Promise: vital, Deadline: time.Now().Add(patience)}, time.Now()
		}
		q.Name = fmt.Sprint("elder/", n)
		a, answered, _ := c.send(q)
		switch {
		case !answered:
			s.t.Errorf("the elder died: %s", c.Log())
			return
		case q.Promise == vital:
			held := sample{at: time.Since(began), items: int(s.reaper.items.Load()), keys: len(s.book.all())}
			if err := json.Unmarshal([]byte(a.Detail), &held.vitals); err != nil {
				s.t.Errorf("the elder reports %q: %v", a.Detail, err)
			}
			s.samples = append(s.samples, held)
		default:
			s.book.write(q, a)
		}
	}
}

// reaper deletes expired items, as DynamoDB does by their time to live: in any order, and
// none whose time to live has changed meanwhile. The store sets it an hour after the expiry
// of a record, which the reaper does not wait for.
type reaper struct {
	storm  *storm
	client *dynamodb.Client
	items  atomic.Int64 // of the table, by the last pass
}

func (p *reaper) work(ctx context.Context) {
	for pause(ctx, p.storm.settings.Scan) == nil {
		_ = p.reap(ctx) // the engine may be dead
	}
}

func (p *reaper) reap(ctx context.Context) error {
	const grace = time.Hour
	now := strconv.FormatInt(time.Now().Add(grace).Unix(), 10)
	pages := dynamodb.NewScanPaginator(p.client, &dynamodb.ScanInput{
		TableName: aws.String(p.storm.settings.Table), FilterExpression: aws.String("#ttl < :now"),
		ExpressionAttributeNames:  map[string]string{"#ttl": tabledef.TTLAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{":now": &types.AttributeValueMemberN{Value: now}},
	})
	items := int64(0)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		items += int64(page.ScannedCount)
		for _, it := range page.Items {
			_, err := p.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName:           aws.String(p.storm.settings.Table),
				Key:                 map[string]types.AttributeValue{tabledef.PartitionKey: it[tabledef.PartitionKey]},
				ConditionExpression: aws.String("#ttl = :ttl"), ExpressionAttributeNames: map[string]string{"#ttl": tabledef.TTLAttribute},
				ExpressionAttributeValues: map[string]types.AttributeValue{":ttl": it[tabledef.TTLAttribute]},
			})
			if err != nil {
				return err
			}
			p.storm.seen.Add(factExpired, 1)
		}
	}
	p.items.Store(items)
	return nil
}
