// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

// plain is the default layout.
var plain = func() *layout {
	l, err := newLayout(layout{partitionKey: "pk", ttl: "ttl"})
	if err != nil {
		panic(err)
	}
	return l
}()

// fuzzNames are the attributes of fuzzed items: all known ones, those of steps,
// and two that a later version might write.
var fuzzNames = []string{
	tabledef.PartitionKey, tabledef.TTLAttribute, tabledef.IndexPartitionKey, tabledef.IndexSortKey,
	attrFormat, attrState, attrRecovery, attrOwner, attrVersion, attrAttempt, attrFingerprint,
	attrReason, attrLeaseEnd, attrExpires, attrCreated, attrSettled, attrResult, attrEncoding,
	attrResultVersion, attrChunkCount, attrChunkLength, attrChunkSum, attrRef, attrRequestID, attrTraceParent, attrReconcileAttempts,
	attrRetention, attrUnresolved, attrCodec, attrStepNames, attrOpenSince, attrSteps,
	stepMode, stepAttempt, stepAt, stepBy, stepShape, stepEncoding, stepResult,
	attrPart, "later", attrPredecessor,
}

// itemOf reads an item from bytes. Each attribute has one byte each for its name,
// its type and the length of its value, and then the value.
func itemOf(data []byte) item {
	it := item{}
	for len(data) >= 3 {
		name, kind, n := fuzzNames[int(data[0])%len(fuzzNames)], data[1], min(int(data[2]), len(data)-3)
		value := data[3 : 3+n]
		data = data[3+n:]
		switch kind % 8 {
		case 0:
			it[name] = &types.AttributeValueMemberS{Value: strings.ToValidUTF8(string(value), "?")}
		case 1:
			it[name] = &types.AttributeValueMemberN{Value: strings.ToValidUTF8(string(value), "?")}
		case 2:
			it[name] = &types.AttributeValueMemberB{Value: slices.Clone(value)}
		case 3:
			it[name] = &types.AttributeValueMemberNULL{Value: true}
		case 4:
			it[name] = &types.AttributeValueMemberM{Value: item{"x": text(strings.ToValidUTF8(string(value), "?"))}}
		case 5: // steps, whose names are those of attributes
			it[name] = &types.AttributeValueMemberM{Value: itemOf(value)}
		case 6:
			list := &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
			for _, v := range itemOf(value) {
				list.Value = append(list.Value, v)
			}
			it[name] = list
		case 7:
			it[name] = &types.AttributeValueMemberBOOL{Value: n > 0}
		}
	}
	return it
}

// FuzzDecode: for every item under a key of this package, decode returns either a
// record that survives writing and reading unchanged, or an error that names the
// invalid attribute and quotes no value. The same is true of a chunk, and no chunk
// decodes as a record.
func FuzzDecode(f *testing.F) {
	bases, random := fuzzBases(f), rand.New(rand.NewPCG(1, 2))
	for n := range 1000 {
		data := make([]byte, random.IntN(60))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(byte(n), data)
	}
	f.Fuzz(func(t *testing.T, base byte, data []byte) {
		it := maps.Clone(bases[int(base)%len(bases)])
		maps.Copy(it, itemOf(data))
		if part, err := decodeChunk(it); err != nil {
			wantQuiet(t, err)
		} else if _, err := plain.decode(plain.chunkItem("charge#key#00#0", part, time.Time{})); err == nil {
			t.Error("a chunk was read as a record")
		}

		before := maps.Clone(it)
		r, err := plain.decode(it)
		if !reflect.DeepEqual(it, before) {
			t.Fatal("decode changed the item")
		}
		if err != nil {
			wantQuiet(t, err)
			return
		}
		again, err := plain.encode(r)
		if err != nil {
			t.Fatalf("a record that was read cannot be written: %v", err)
		}
		second, err := plain.decode(again)
		if err != nil || !reflect.DeepEqual(second, r) {
			t.Errorf("read again:\n%+v\nwant\n%+v (%v)", second, r, err)
		}
		for name, value := range it {
			if !plain.known(name) && !reflect.DeepEqual(again[name], value) {
				t.Errorf("attribute %s of a later version was lost", name)
			}
		}
		if steps, ok := it[attrSteps].(*types.AttributeValueMemberM); ok {
			for step, value := range steps.Value {
				for name, value := range value.(*types.AttributeValueMemberM).Value {
					kept := again[attrSteps].(*types.AttributeValueMemberM).Value[step].(*types.AttributeValueMemberM).Value[name]
					if !knownInStep(name) && !reflect.DeepEqual(kept, value) {
						t.Errorf("attribute %s of a step of a later version was lost", name)
					}
				}
			}
		}
		if itemSize(again) <= 0 {
			t.Error("an item of no size")
		}
	})
}

// fuzzBases returns the items that are changed: of records, a chunk, and nothing.
func fuzzBases(f *testing.F) []item {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	claim := driver.Record{ID: "charge#key", State: driver.StateInProgress, Attempt: 1, LeaseEnd: at(1_700_000_002_345), Due: at(1_700_000_002_345), Created: at(1)}
	large := claim
	large.State, large.Expires, large.Since, large.Due = driver.StateCompleted, at(1_700_086_400_001), at(2), time.Time{}
	large.PredecessorAnswered, large.Chunks = true, driver.Chunks{Count: 2, Length: 500_000, Sum: [32]byte{1}}
	stepped := claim
	stepped.Recovery, stepped.Codec, stepped.StepNames, stepped.OpenSince = driver.Resume, "gzip+json", []string{"own", "fp"}, at(1)
	stepped.Steps = []driver.StepRecord{
		{Name: "own", Finished: true, Attempt: 1, At: at(1), By: driver.StepByRun, Shape: "f00d", Encoding: "json", Result: []byte("1")},
		{Name: "fp", Mode: driver.AtMostOnce, Attempt: 1},
	}
	bases := []item{{}, plain.chunkItem("charge#key#00#0", []byte("part"), at(1))}
	for _, r := range []driver.Record{claim, large, stepped} {
		it, err := plain.encode(&r)
		if err != nil {
			f.Fatal(err)
		}
		bases = append(bases, it)
	}
	return bases
}

// quiet matches the errors about an item: they contain names and no values.
var quiet = regexp.MustCompile(`^dynamostore: (invalid (record|record's step|chunk): attribute (` + strings.Join(fuzzNames, "|") + `) ` +

	`(is missing|is empty|is not a string|is not binary|is not a number|is not a 64-bit integer|is not a valid number of chunks|is not a valid length|is not a duration|is not a list of names|` +
	`is not a map|is not true|contains a value that is not a step|is present without a result|is present without an encoding, or missing|does not have \d+ bytes|` +
	regexp.QuoteMeta(fromLater) + `)|unknown format version of a (record|record's step|chunk) \(attribute v\): deploy the newer version here too)$`)

func wantQuiet(t *testing.T, err error) {
	t.Helper()
	if !quiet.MatchString(err.Error()) {
		t.Errorf("the error may contain a value: %q", err)
	}
}

// These pairs must never change: a version with other keys would hide records
// from the reconcilers of all other versions. They were computed with another
// implementation of CRC-32.
func TestIndexKey_Golden(t *testing.T) {
	t.Parallel()
	for pk, want := range map[string]string{
		"charge#key": "u#42",
		"a":          "u#03",
		"charge#wQvdHla1nzuv1SGeppP843Fmud3BrcT3MXfzPOAh-tc": "u#23",
		"chärge#x": "u#30",
	} {
		if got := indexKey(pk, false); got != want {
			t.Errorf("indexKey(%q) = %q, want %q", pk, got, want)
		}
	}
}

// The expected sizes were counted by hand with the rules of the developer guide.
func TestItemSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		value types.AttributeValue
		want  int
	}{
		{"S", text("ü"), 2},
		{"empty S", text(""), 0},
		{"B", &types.AttributeValueMemberB{Value: make([]byte, 7)}, 7},
		{"N of one digit", number(7), 2},
		{"N of two digits", number(12), 2},
		{"N of three digits", number(123), 3},
		{"N below zero", number(-12), 3},
		{"BOOL", &types.AttributeValueMemberBOOL{Value: true}, 1},
		{"NULL", &types.AttributeValueMemberNULL{Value: true}, 1},
		{"SS", &types.AttributeValueMemberSS{Value: []string{"ab", "c"}}, 3},
		{"BS", &types.AttributeValueMemberBS{Value: [][]byte{{1, 2}, {3}}}, 3},
		{"NS", &types.AttributeValueMemberNS{Value: []string{"1", "123"}}, 5},
		{"empty L", &types.AttributeValueMemberL{}, 3},
		{"L", &types.AttributeValueMemberL{Value: []types.AttributeValue{text("ab"), number(1)}}, 3 + (1 + 2) + (1 + 2)},
		{"empty M", &types.AttributeValueMemberM{}, 3},
		{"M", &types.AttributeValueMemberM{Value: item{"k": text("ab"), "kk": number(1)}}, 3 + (1 + 1 + 2) + (1 + 2 + 2)},
	} {
		if got := itemSize(item{"name": tt.value}); got != 4+tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, 4+tt.want)
		}
	}
}

// Items of others are not records, even if a list returned them. Without a prefix a
// list has no filter for them.
func TestLayout_ForeignItems(t *testing.T) {
	t.Parallel()
	beside, err := newLayout(layout{partitionKey: "PK", sortKey: "SK", ttl: "expires_at", prefix: "ONCE#"})
	if err != nil {
		t.Fatal(err)
	}
	r := driver.Record{ID: "charge#1", State: driver.StateUnknown, Due: time.UnixMilli(2)}
	it, err := beside.encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := beside.decodeListed(it); e.ID != r.ID || err != nil || beside.nameOf(it) != "charge#1" {
		t.Errorf("its own item: %q, %v, %q", e.ID, err, beside.nameOf(it))
	}
	it["PK"] = text("ORDER#charge#1")
	if e, err := beside.decodeListed(it); e.ID != "" || err == nil || !strings.Contains(err.Error(), "PK") || beside.nameOf(it) != "" {
		t.Errorf("an order: %q, %v, %q", e.ID, err, beside.nameOf(it))
	}
	if expression, _, values := plain.filter("", nil); expression != nil || values != nil {
		t.Errorf("the filter is %v with %v", expression, values)
	}
	if expression, _, _ := beside.filter("", nil); expression == nil {
		t.Error("a shared table has no filter")
	}
}

// The values of a record are allocated together. A prefix costs a request one allocation,
// the key, and a sort key none.
func TestLayout_Allocations(t *testing.T) {
	beside, err := newLayout(layout{partitionKey: "PK", sortKey: "SK", ttl: "expires_at", prefix: "ONCE#"})
	if err != nil {
		t.Fatal(err)
	}
	key := idempotent.Key{Operation: "charge", Scope: "tenant", ID: "1"}
	r := driver.Record{ID: key.RecordID(), State: driver.StateInProgress, Attempt: 1, LeaseEnd: time.UnixMilli(2), Expires: time.UnixMilli(3)}
	count := func(l *layout) float64 {
		return testing.AllocsPerRun(100, func() {
			it, err := l.encode(&r)
			if err == nil {
				_, err = l.decode(it)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if own, shared := count(plain), count(beside); shared > own+1 || own < 1 {
		t.Errorf("a record takes %v allocations in a separate table, and %v beside other items", own, shared)
	}
	r.Reason, r.RequestID, r.Ref, r.Due, r.Created, r.Since = "claimed", "request", "ch_1", r.LeaseEnd, r.LeaseEnd, r.LeaseEnd
	if n := testing.AllocsPerRun(100, func() { _, _ = plain.encode(&r) }); n > 8 {
		t.Errorf("the item of a record takes %v allocations", n)
	}
	// More steps take only what their maps take: their values are allocated together too.
	ofMaps := func(steps int) float64 {
		return testing.AllocsPerRun(100, func() {
			all := make(item, steps)
			for _, s := range r.Steps[:steps] {
				it := item{}
				for _, name := range []string{stepMode, stepAttempt, stepAt, stepShape, stepEncoding, stepResult} {
					it[name] = nil
				}
				all[s.Name] = &types.AttributeValueMemberM{Value: it}
			}
		})
	}
	encoded := func(steps int) float64 {
		for len(r.Steps) < steps {
			name := fmt.Sprint("step/", len(r.Steps))
			r.StepNames = append(r.StepNames, name)
			r.Steps = append(r.Steps, driver.StepRecord{Name: name, Attempt: 1, At: r.Created, Finished: true, Encoding: "json", Result: []byte("1"), Shape: "int"})
		}
		return testing.AllocsPerRun(100, func() { _, _ = plain.encode(&r) })
	}
	few, many := encoded(10), encoded(50)
	if maps := ofMaps(50) - ofMaps(10) - 40; many-few != maps { // one value for each map in the test, one for all in a record
		t.Errorf("ten steps take %v allocations, and fifty %v; the maps of forty take %v", few, many, maps)
	}
}

// The result of a step is stored as bytes even if it is nil, which the SDK would send as null.
func TestLayout_NilResultOfAStep(t *testing.T) {
	t.Parallel()
	r := driver.Record{ID: "charge#1", State: driver.StateUnknown, Steps: []driver.StepRecord{{Name: "a", Finished: true, Encoding: "json"}}}
	it, err := plain.encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	step := it[attrSteps].(*types.AttributeValueMemberM).Value["a"].(*types.AttributeValueMemberM).Value
	if step[stepResult].(*types.AttributeValueMemberB).Value == nil {
		t.Error("the result is null")
	}
}

// A full chunk fits into an item of DynamoDB with every key: with the longest
// record id, and with the longest key that DynamoDB accepts.
func TestChunkItem_Fits(t *testing.T) {
	t.Parallel()
	for _, key := range []int{300 + 1 + 32 + 1 + 3, 2048} {
		it := plain.chunkItem(strings.Repeat("k", key), make([]byte, chunkSize), time.UnixMilli(253_402_300_799_999))
		size := itemSize(it)
		if size > maxItem {
			t.Errorf("with a key of %d bytes the item has %d bytes, and DynamoDB accepts %d", key, size, maxItem)
		}
		if spare := maxItem - size; spare > maxItem/100 {
			t.Errorf("with a key of %d bytes, %d bytes are left unused", key, spare)
		}
	}
}

// After the caller stops, nothing more is yielded, even if producers find more.
func TestGather_Enough(t *testing.T) {
	t.Parallel()
	given := 0
	gather(t.Context(), 8, 8, func(driver.Record, error) bool { given++; return false },
		func(_ context.Context, _ int, found func(entry) bool) error {
			for range 100 {
				found(entry{record: driver.Record{ID: "charge#1"}})
			}
			return nil
		})
	if given != 1 {
		t.Errorf("%d records were yielded", given)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	const base, limit = 10 * time.Millisecond, 500 * time.Millisecond
	for doublings, full := range map[int]time.Duration{
		0: base, 1: 2 * base, 2: 4 * base, 5: 32 * base, 6: limit, 31: limit, 32: limit, 1000: limit,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := backoff(base, limit, doublings)
			if d <= full/2 || d > full {
				t.Fatalf("backoff after %d doublings is %s, want up to %s and more than half of it", doublings, d, full)
			}
			seen[d] = true
		}
		if len(seen) < 90 {
			t.Errorf("only %d of 100 pauses after %d doublings differ", len(seen), doublings)
		}
	}
}

// Open takes every setting of the environment, and the program's options come last.
func TestOpenTakesTheEnvironment(t *testing.T) {
	for variable, value := range map[string]string{
		"ONCE_TABLE_A": "once-a", "ONCE_CHUNK_TABLE_A": "once-chunks", "ONCE_SCAN_EVERY_A": "off", "ONCE_SCAN_SEGMENTS_A": "4",
		"ONCE_CONSISTENCY_A": "strong", "ONCE_PARTITION_KEY_A": "PK", "ONCE_SORT_KEY_A": "SK", "ONCE_PREFIX_A": "ONCE#",
		"ONCE_TTL_ATTRIBUTE_A": "expires",
	} {
		t.Setenv(variable, value)
	}
	client := &dynamodb.Client{}
	s, err := Open(t.Context(), func(o *Options) { o.Name, o.Client, o.ScanSegments = "a", client, o.ScanSegments+3 })
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Name: "a", Client: client, ChunkTable: "once-chunks", Consistency: Strong, ScanEvery: -1, ScanSegments: 7,
		PartitionKey: "PK", SortKey: "SK", Prefix: "ONCE#", TTLAttribute: "expires",
	}
	if s.opts != want || s.table != "once-a" || s.client != Client(client) {
		t.Errorf("table %s with the options %+v", s.table, s.opts)
	}
}

// The options have their documented defaults, and bounds.
func TestOptions_Scan(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		set, want Options
		err       string
	}{
		{Options{}, Options{ScanEvery: 24 * time.Hour, ScanSegments: 1, PartitionKey: "pk", TTLAttribute: "ttl"}, ""},
		{Options{ScanEvery: time.Hour, ScanSegments: 1000}, Options{ScanEvery: time.Hour, ScanSegments: 1000, PartitionKey: "pk", TTLAttribute: "ttl"}, ""},
		{Options{ScanSegments: 1001}, Options{}, "ScanSegments is 1001"},
		{Options{ScanSegments: -1}, Options{}, "ScanSegments is -1"},
	} {
		got := row.set
		err := got.setDefaults()
		if row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) || row.err == "" && (err != nil || got != row.want) {
			t.Errorf("%+v: got %+v, %v", row.set, got, err)
		}
	}
}

// ItemSize returns the size of an item in bytes.
var ItemSize = itemSize

// ProtocolOf returns the protocol of a client, from that of the SDK and its schema of a PutItem.
var ProtocolOf = faster
