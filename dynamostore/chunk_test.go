// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// chunkSize is how many bytes of a result are in one item.
const chunkSize = 405_504

var chunksExpire = at(1_700_086_400_001)

// noise returns bytes in which no two chunks are equal.
func noise(size int) []byte {
	r := rand.NewChaCha8([32]byte{byte(size)})
	data := make([]byte, size)
	r.Read(data)
	return data
}

func putChunks(t testing.TB, s *dynamostore.Store, data []byte) (id idempotent.RecordID, v driver.Version, count int) {
	t.Helper()
	id, v = someRecord().ID, newVersion()
	count, err := s.PutChunks(t.Context(), id, v, data, chunksExpire)
	if err != nil {
		t.Fatal(err)
	}
	return id, v, count
}

func TestChunks_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ size, count, puts, gets int }{
		{0, 1, 1, 1},
		{1, 1, 1, 1},
		{300 << 10, 1, 1, 1},
		{chunkSize - 1, 1, 1, 1},
		{chunkSize, 1, 1, 1},
		{chunkSize + 1, 2, 1, 1},
		{399 << 10, 2, 1, 1},
		{401 << 10, 2, 1, 1},
		{2*chunkSize + 1, 3, 1, 1},
		{6 << 20, 16, 1, 1}, // Lambda's limit: one call each
		{25 * chunkSize, 25, 1, 1},
		{25*chunkSize + 1, 26, 2, 1},
		{40 * chunkSize, 40, 2, 1},
		{40*chunkSize + 1, 41, 2, 2},
		{64 << 20, 166, 7, 5},
	} {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			t.Parallel()
			fake := newFake()
			s := newStore(t, fake)
			data := noise(tt.size)
			id, v, count := putChunks(t, s, data)
			if count != tt.count || len(fake.all()) != tt.count || fake.count("BatchWriteItem") != tt.puts {
				t.Errorf("%d chunks in %d items, written by %d calls; want %d by %d", count, len(fake.all()), fake.count("BatchWriteItem"), tt.count, tt.puts)
			}
			for again := range 2 {
				got, err := s.GetChunks(t.Context(), id, v, count)
				if err != nil || !bytes.Equal(got, data) || got == nil {
					t.Fatalf("got %d bytes, %v; want the %d that were put", len(got), err, len(data))
				}
				if clear(got); again > 0 || tt.size > 100 { // the caller owns the bytes
					break
				}
				tt.gets++
			}
			if n := fake.count("BatchGetItem"); n != tt.gets {
				t.Errorf("%d calls to read them, want %d", n, tt.gets)
			}
			if n := fake.count("PutItem") + fake.count("GetItem"); n != 0 {
				t.Errorf("%d other calls", n)
			}
		})
	}
}

func TestChunks_EveryAttribute(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	v := driver.Version{0: 0x0a, 15: 0xff}
	data := noise(chunkSize + 2)
	for _, tt := range []struct {
		expires time.Time
		ttl     string
	}{
		{at(1_700_086_400_001), "\n\tttl N 1700093601"}, // two hours later, rounded up
		{time.Time{}, ""}, // never, as for a record
	} {
		if _, err := s.PutChunks(t.Context(), "charge#key", v, data, tt.expires); err != nil {
			t.Fatal(err)
		}
		const key = "charge#key#0a0000000000000000000000000000ff#"
		if got, want := slices.Sorted(maps.Keys(fake.all())), []string{key + "0", key + "1"}; !slices.Equal(got, want) {
			t.Fatalf("keys %q, want %q", got, want)
		}
		want := fmt.Sprintf("\n\tpart B %x\n\tpk S %q%s\n\tv N 1", data[chunkSize:], key+"1", tt.ttl)
		if got := show(fake.item(key + "1")); got != want {
			t.Errorf("the chunk is%s\nwant%s", got, want)
		}
	}
}

// FM35: a missing chunk makes the result missing, never shorter.
func TestChunkMissing(t *testing.T) {
	t.Parallel()
	data := noise(45 * chunkSize)
	for _, missing := range []int{0, 7, 15, 39, 40, 44} {
		fake := newFake()
		s := newStore(t, fake)
		id, v, count := putChunks(t, s, data)
		fake.remove(fmt.Sprintf("%s#%x#%d", id, v, missing))
		if len(fake.all()) != count-1 {
			t.Fatal("nothing was deleted: the test is void")
		}
		if got, err := s.GetChunks(t.Context(), id, v, count); got != nil || !errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("without chunk %d: %d bytes, %v, want ErrNoRecord", missing, len(got), err)
		}
	}
	if got, err := newStore(t, newFake()).GetChunks(t.Context(), "charge#key", newVersion(), 1); got != nil || !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("without all chunks: %d bytes, %v, want ErrNoRecord", len(got), err)
	}
}

func TestChunks_OutOfBounds(t *testing.T) {
	t.Parallel()
	fake := newFake()
	if count, err := newStore(t, fake).PutChunks(t.Context(), "charge#key", newVersion(), make([]byte, 64<<20+1), chunksExpire); count != 0 || !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("got %d, %v, want ErrTooLarge", count, err)
	}
	for _, count := range []int{math.MinInt, -1, 0, 167, math.MaxInt} {
		got, err := newStore(t, fake).GetChunks(t.Context(), "charge#key", newVersion(), count)
		if got != nil || err == nil || errors.Is(err, idempotent.ErrNoRecord) || !strings.Contains(err.Error(), "1 to 166") {
			t.Errorf("%d chunks: %d bytes, %v; want an error with the readable range", count, len(got), err)
		}
	}
	if len(fake.sent) != 0 {
		t.Error("it was sent")
	}
}

func TestChunks_Damaged(t *testing.T) {
	t.Parallel()
	const secret = "SECRET"
	for _, tt := range []struct {
		attribute string
		value     types.AttributeValue // nil: removed
		problem   string
	}{
		{"v", nil, "is missing"},
		{"v", &types.AttributeValueMemberN{Value: "2"}, "deploy the newer version"},
		{"v", &types.AttributeValueMemberS{Value: secret}, "is not a number"},
		{"part", nil, "is missing"},
		{"part", &types.AttributeValueMemberS{Value: secret}, "is not binary"},
	} {
		fake := newFake()
		s := newStore(t, fake)
		id, v, count := putChunks(t, s, noise(chunkSize+1))
		fake.change(fmt.Sprintf("%s#%x#1", id, v), func(it item) {
			if it[tt.attribute] = tt.value; tt.value == nil {
				delete(it, tt.attribute)
			}
		})
		got, err := s.GetChunks(t.Context(), id, v, count)
		if got != nil || err == nil || errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("%s %s: got %d bytes, %v, want an error", tt.attribute, tt.problem, len(got), err)
			continue
		}
		text := err.Error()
		if !strings.HasPrefix(text, "dynamostore: ") || !strings.Contains(text, "attribute "+tt.attribute) || !strings.Contains(text, tt.problem) {
			t.Errorf("%v; want it to contain %s and %q", err, tt.attribute, tt.problem)
		}
		if strings.Contains(text, secret) || strings.Contains(text, string(id)) {
			t.Errorf("the error contains a value: %v", err)
		}
	}
}

// No chunk's key is a record id, for every operation name and number of attempts.
func TestChunks_KeysAreNoRecordIDs(t *testing.T) {
	t.Parallel()
	v, data := newVersion(), make([]byte, 64<<20)
	hash := strings.Repeat("A", 43)
	for operation, c := range map[string]struct{ size, chunks int }{
		"charge":                               {64 << 20, 166},
		fmt.Sprintf("charge#%s#%x", hash, v):   {1 << 20, 3},
		fmt.Sprintf("charge#%s#%x#0", hash, v): {1 << 20, 3},
		"#":                                    {1 << 20, 3},
		"0":                                    {1 << 20, 3},
		strings.Repeat("#0", 128):              {64 << 20, 166},
	} {
		record := idempotent.Key{Operation: operation, Scope: "tenant", ID: "1"}.RecordID()
		if _, err := idempotent.ParseRecordID(string(record)); err != nil {
			t.Fatalf("%s is not a record id: the test is void", record)
		}
		fake := newFake()
		if _, err := newStore(t, fake).PutChunks(t.Context(), record, v, data[:c.size], chunksExpire); err != nil {
			t.Fatal(err)
		}
		if len(fake.all()) != c.chunks {
			t.Fatalf("%d chunks, want %d: some share a key", len(fake.all()), c.chunks)
		}
		for key := range fake.all() {
			if _, err := idempotent.ParseRecordID(key); err == nil {
				t.Errorf("the chunk %s could be a record", key)
			}
			if last := key[strings.LastIndexByte(key, '#')+1:]; len(last) > 3 {
				t.Errorf("the chunk %s has %d characters after its last #, want at most 3", key, len(last))
			}
		}
	}
}

// Reading a chunk as a record fails and does not change the chunk.
func TestChunks_AreNoRecords(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	id, v, count := putChunks(t, s, noise(10))
	r := fullRecord()
	r.ID = idempotent.RecordID(fmt.Sprintf("%s#%x#0", id, v))
	before := fake.item(string(r.ID))
	if before == nil {
		t.Fatal("the chunk does not exist: the test is void")
	}
	longAfter := chunksExpire.AddDate(1, 0, 0)
	_, getErr := s.Get(t.Context(), r.ID)
	_, insertErr := s.Insert(t.Context(), r, longAfter)
	_, replaceErr := s.Replace(t.Context(), r, v)
	_, zeroErr := s.Replace(t.Context(), r, driver.Version{})
	for way, err := range map[string]error{"Get": getErr, "Insert": insertErr, "Replace": replaceErr, "Replace of no version": zeroErr} {
		if err == nil || errors.Is(err, idempotent.ErrNoRecord) || !strings.Contains(err.Error(), "attribute") {
			t.Errorf("%s: %v; want an error that names an attribute", way, err)
		}
	}
	if !reflect.DeepEqual(fake.item(string(r.ID)), before) {
		t.Error("the chunk was changed")
	}

	// The reverse: a record cannot be read as a chunk.
	r = fullRecord()
	insert(t, s, r)
	it := fake.item(string(r.ID))
	it["pk"] = before["pk"]
	fake.store(it)
	if got, err := s.GetChunks(t.Context(), id, v, count); got != nil || err == nil || !strings.Contains(err.Error(), "attribute part") {
		t.Errorf("got %x, %v; want an error that names part", got, err)
	}
}

// DynamoDB's replies to a store that was created with an ARN.
func TestChunks_ReplyNamesTheTableOtherwise(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.alias = "arn:aws:dynamodb:eu-central-1:123456789012:table/once"
	fake.leave = func(_ string, n, size int) int {
		if n == 1 {
			return size / 2
		}
		return 0
	}
	s := newStore(t, fake)
	data := noise(3 * chunkSize)
	id, v, count := putChunks(t, s, data)
	if got, err := s.GetChunks(t.Context(), id, v, count); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if fake.count("BatchWriteItem") != 2 || fake.count("BatchGetItem") != 2 {
		t.Error("everything was processed at once: the test is void")
	}
}

// An item with a foreign key is not read as a chunk.
func TestChunks_ForeignItemInTheReply(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	id, v, count := putChunks(t, s, noise(10))
	for _, pk := range []types.AttributeValue{nil, &types.AttributeValueMemberN{Value: "1"}, &types.AttributeValueMemberS{Value: "another"}} {
		foreign := newStore(t, dynamotest.Intercept(fake, func(ctx context.Context, c *dynamotest.Call) {
			c.Do(ctx)
			for _, it := range c.Out.(*dynamodb.BatchGetItemOutput).Responses[tableName] {
				it["pk"] = pk
			}
		}))
		if got, err := foreign.GetChunks(t.Context(), id, v, count); got != nil || !errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("%T: got %x, %v, want ErrNoRecord", pk, got, err)
		}
	}
}

// FM58: a storm of duplicates is billed by the size of the record, which stays
// below 1 KB for every size of the result.
func TestRecordOfALargeResultIsSmall(t *testing.T) {
	t.Parallel()
	for _, size := range []int{4<<10 + 1, 300 << 10, 1 << 20} {
		fake := newFake()
		guard, err := idempotent.New(newStore(t, fake), func(o *idempotent.Options) { o.Codec = asItIs{} })
		if err != nil {
			t.Fatal(err)
		}
		key := idempotent.Key{Operation: strings.Repeat("o", 256), Scope: "tenant", ID: "1", Fingerprint: idempotent.FingerprintBytes(nil)}
		data := noise(size)
		for range 3 {
			out, err := idempotent.DoOutcome(t.Context(), guard, key, func(ctx context.Context) ([]byte, error) { return data, nil })
			if err != nil || !out.Stored || !bytes.Equal(out.Value, data) {
				t.Fatalf("got %d bytes, stored %v, %v", len(out.Value), out.Stored, err)
			}
		}
		for operation, want := range map[string]int{"PutItem": 4, "BatchWriteItem": 1, "BatchGetItem": 2, "GetItem": 0} {
			if n := fake.count(operation); n != want {
				t.Errorf("%d calls of %s, want %d", n, operation, want)
			}
		}
		n := 0
		for name, value := range fake.item(string(key.RecordID())) {
			n += len(name) + len(strings.TrimLeft(showValue(value), "SNB ")) // hex: an upper bound
		}
		if n > 1000 {
			t.Errorf("the record of a result of %d bytes has about %d bytes", size, n)
		}
	}
}

// asItIs is a codec for bytes.
type asItIs struct{}

func (asItIs) Name() string { return "bytes" }

func (asItIs) Encode(v any) ([]byte, error) { return v.([]byte), nil }

func (asItIs) Decode(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }

// bothWays runs f for writing and for reading a result of 16 chunks. The faults
// that f injects are for that operation; call makes the operation and returns its
// error.
func bothWays(t *testing.T, f func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error)) {
	data := noise(6 << 20)
	newCall := func(t *testing.T, fake *fakeDynamoDB, put bool, optFns ...func(*dynamostore.Options)) func(context.Context) error {
		s := newStore(t, fake, optFns...)
		id, v := someRecord().ID, newVersion()
		check := func() error {
			got, err := newStore(t, fake).GetChunks(context.Background(), id, v, 16)
			if err == nil && !bytes.Equal(got, data) {
				t.Errorf("got %d bytes that differ from the %d written", len(got), len(data))
			}
			return err
		}
		if put {
			return func(ctx context.Context) error {
				_, err := s.PutChunks(ctx, id, v, data, chunksExpire)
				if err == nil {
					fake.leave, fake.refuse = nil, nil
					err = check()
				}
				return err
			}
		}
		if _, err := s.PutChunks(t.Context(), id, v, data, chunksExpire); err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error {
			got, err := s.GetChunks(ctx, id, v, 16)
			if err == nil && !bytes.Equal(got, data) {
				t.Errorf("got %d bytes that differ from the %d written", len(got), len(data))
			}
			return err
		}
	}
	for operation, put := range map[string]bool{"BatchWriteItem": true, "BatchGetItem": false} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				f(t, operation, fake, newCall(t, fake, put))
			})
		})
	}
}

// DynamoDB leaves a part of each batch unprocessed, until nothing is left.
func TestBatch_PartsLeft(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
		sizes := []int{}
		fake.leave = func(_ string, _, size int) int {
			sizes = append(sizes, size)
			return size - 1
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := call(ctx); err != nil {
			t.Fatal(err)
		}
		for i, size := range sizes {
			if size != 16-i {
				t.Fatalf("batches of %d, want 16 and then only the items that were left", sizes)
			}
		}
		// Every call makes progress, so each of the 15 pauses is the shortest one.
		if took := time.Since(began); len(sizes) != 16 || took < 75*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("%d calls within %s, want 16 with a pause of up to 10ms before each but the first", len(sizes), took)
		}
	})
}

// nothingDone returns the ways in which DynamoDB processes nothing of a batch.
// Each injects the fault for the calls that during selects.
func nothingDone() map[string]func(fake *fakeDynamoDB, during func(n int) bool) {
	refuse := func(err error) func(*fakeDynamoDB, func(int) bool) {
		return func(fake *fakeDynamoDB, during func(int) bool) {
			fake.refuse = func(_ string, n int) error {
				if during(n) {
					return err
				}
				return nil
			}
		}
	}
	return map[string]func(*fakeDynamoDB, func(int) bool){
		"all left": func(fake *fakeDynamoDB, during func(int) bool) {
			fake.leave = func(_ string, n, size int) int {
				if during(n) {
					return size
				}
				return 0
			}
		},
		"throughput exceeded":  refuse(&types.ProvisionedThroughputExceededException{Message: aws.String("slow down")}),
		"throttled":            refuse(&smithy.GenericAPIError{Code: "ThrottlingException", Message: "slow down"}),
		"account limit":        refuse(&types.RequestLimitExceeded{Message: aws.String("slow down")}),
		"transaction conflict": refuse(transactionConflict),
		"replicated conflict":  refuse(replicatedConflict),
	}
}

// DynamoDB processes nothing of a batch before the deadline: the call fails while
// some time is left.
func TestBatch_NothingDoneInTime(t *testing.T) {
	t.Parallel()
	for name, order := range nothingDone() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
				first := fake.count(operation)
				order(fake, func(int) bool { return true })
				const budget = 2 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				began := time.Now()
				err := call(ctx)
				took := time.Since(began)
				if err == nil || ctx.Err() != nil || !strings.HasPrefix(err.Error(), "dynamostore: "+operation+" on table") {
					t.Errorf("got %v with context %v, want an error before the deadline", err, ctx.Err())
				}
				if errors.Is(err, idempotent.ErrNoRecord) || errors.Is(err, driver.ErrTooLarge) {
					t.Errorf("%v is definite", err)
				}
				if took >= budget || took < budget-500*time.Millisecond {
					t.Errorf("it took %s of %s", took, budget)
				}
				if n := fake.count(operation) - first; n < 6 || n > 19 {
					t.Errorf("%d attempts in %s", n, took)
				}
			})
		})
	}
}

// Without a deadline the call fails after twenty attempts without progress, with
// the cause.
func TestBatch_NothingDoneEver(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
		first := fake.count(operation)
		fake.leave = func(_ string, n, size int) int {
			if n-first <= 10 { // one item is processed now and then
				return size - n%2
			}
			return size
		}
		err := call(t.Context())
		if err == nil || !strings.Contains(err.Error(), "at each of 20 attempts") || !strings.Contains(err.Error(), "throttling metrics") {
			t.Errorf("got %v", err)
		}
		// The last progress was in the ninth or tenth call.
		if n := fake.count(operation) - first; n < 28 || n > 29 {
			t.Errorf("%d calls, want 20 from the last one with progress", n)
		}
	})
}

// An error that is neither throttling nor a conflict ends the call at once, also
// within a batch and between two batches.
func TestBatch_OtherErrors(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	t.Run("in the midst", func(t *testing.T) {
		t.Parallel()
		bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
			first := fake.count(operation)
			fake.leave = func(_ string, _, size int) int { return size / 2 }
			fake.refuse = func(_ string, n int) error {
				if n == first+2 {
					return reset
				}
				return nil
			}
			if err := call(t.Context()); !errors.Is(err, reset) || fake.count(operation) != first+2 {
				t.Errorf("got %v after %d calls, want %v after 2", err, fake.count(operation)-first, reset)
			}
		})
	})
	t.Run("between two", func(t *testing.T) {
		t.Parallel()
		fake := newFake()
		s := newStore(t, fake)
		id, v, count := putChunks(t, s, noise(41*chunkSize))
		first := map[string]int{"BatchWriteItem": fake.count("BatchWriteItem")}
		fake.refuse = func(operation string, n int) error {
			if n == first[operation]+2 {
				return reset
			}
			return nil
		}
		if n, err := s.PutChunks(t.Context(), id, v, noise(41*chunkSize), chunksExpire); n != 0 || !errors.Is(err, reset) {
			t.Errorf("PutChunks: %d, %v, want %v", n, err, reset)
		}
		if got, err := s.GetChunks(t.Context(), id, v, count); got != nil || !errors.Is(err, reset) {
			t.Errorf("GetChunks: %d bytes, %v, want %v", len(got), err, reset)
		}
	})
}

const chunkTable = "once-chunks"

func inChunkTable(o *dynamostore.Options) { o.ChunkTable = chunkTable }

// twoTables returns a database with a store's two tables.
func twoTables(t *testing.T) (*dynamotest.DB, *dynamostore.Store) {
	t.Helper()
	db := dynamotest.New()
	s := newStore(t, db, inChunkTable)
	if err := s.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, s
}

// partsIn returns the number of chunks in a table, and of other items.
func partsIn(t *testing.T, db *dynamotest.DB, table string) (parts, others int) {
	t.Helper()
	for pages := dynamodb.NewScanPaginator(db, &dynamodb.ScanInput{TableName: aws.String(table)}); pages.HasMorePages(); {
		out, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range out.Items {
			if it["part"] != nil {
				parts++
			} else {
				others++
			}
		}
	}
	return parts, others
}

// Results that were stored before the option was set are found and deleted, and a
// missing chunk is one.
func TestChunkTable_SetLater(t *testing.T) {
	t.Parallel()
	db, s := twoTables(t)
	before := newStore(t, db)
	data := noise(chunkSize + 1)
	id, v, count := putChunks(t, before, data)
	if got, err := s.GetChunks(t.Context(), id, v, count); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if _, err := s.GetChunks(t.Context(), id, newVersion(), count); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("a missing result: %v", err)
	}
	r := fullRecord()
	r.ID, r.Version, r.Chunks.Count = id, v, count
	insert(t, s, r)
	if current, err := s.Delete(t.Context(), id, v); current != nil || err != nil {
		t.Fatal(current, err)
	}
	if parts, _ := partsIn(t, db, tableName); parts != 0 {
		t.Errorf("after Delete %d chunks are left", parts)
	}
}

func TestChunkTable_Purge(t *testing.T) {
	t.Parallel()
	db, s := twoTables(t)
	r := someRecord()
	for _, store := range []*dynamostore.Store{s, newStore(t, db)} {
		if _, err := store.PutChunks(t.Context(), "report#gone", newVersion(), noise(10), at(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutChunks(t.Context(), r.ID, r.Version, noise(10), at(1)); err != nil {
		t.Fatal(err)
	}
	r.Chunks.Count = 1
	insert(t, s, r)
	if n, err := s.PurgeChunks(t.Context(), time.Now()); n != 2 || err != nil {
		t.Errorf("purged %d, %v, want one in each table", n, err)
	}
	if parts, _ := partsIn(t, db, chunkTable); parts != 1 {
		t.Errorf("%d chunks are left, want the one that a record refers to", parts)
	}
}

// The problems and errors name the table that they are about.
func TestChunkTable_Errors(t *testing.T) {
	t.Parallel()
	db := dynamotest.New(tableName)
	s := newStore(t, db, inChunkTable)
	schema := (*dynamostore.SchemaError)(nil)
	if err := s.Check(t.Context()); !errors.As(err, &schema) || schema.Table != chunkTable || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing table: %v", err)
	}
	if _, err := s.PutChunks(t.Context(), "report#1", newVersion(), noise(10), at(1)); err == nil || !strings.Contains(err.Error(), `BatchWriteItem on table "once-chunks"`) {
		t.Errorf("a missing table: %v", err)
	}
	if _, err := s.PurgeChunks(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), `Scan on table "once-chunks"`) {
		t.Errorf("a missing table: %v", err)
	}
	if _, err := dynamostore.New(db, tableName, func(o *dynamostore.Options) { o.ChunkTable = "no table" }); err == nil || !strings.Contains(err.Error(), "no table") {
		t.Errorf("an invalid name: %v", err)
	}
	same := newStore(t, db, func(o *dynamostore.Options) { o.ChunkTable = tableName })
	if err := same.Check(t.Context()); err != nil {
		t.Errorf("the store's own table: %v", err)
	}
}

// A chunk table that is the store's own table is read once.
func TestChunkTable_Itself(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake, func(o *dynamostore.Options) { o.ChunkTable = tableName })
	r := someRecord()
	if _, err := s.GetChunks(t.Context(), r.ID, r.Version, 1); !errors.Is(err, idempotent.ErrNoRecord) || fake.count("BatchGetItem") != 1 {
		t.Errorf("%v after %d reads", err, fake.count("BatchGetItem"))
	}
}
