// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

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

// The environment sets the options that it names, and New refuses invalid values.
func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		variable, value string
		want            Options
		err             string
	}{
		{"ONCE_CHUNK_TABLE", "once-chunks", Options{ChunkTable: "once-chunks"}, ""},
		{"ONCE_SCAN_EVERY", "1h", Options{ScanEvery: time.Hour}, ""},
		{"ONCE_SCAN_EVERY", "off", Options{ScanEvery: -1}, ""},
		{"ONCE_SCAN_SEGMENTS", "4", Options{ScanSegments: 4}, ""},
		{"ONCE_CONSISTENCY", "strong", Options{Consistency: Strong}, ""},
		{"ONCE_CONSISTENCY", "eventual", Options{}, `ONCE_CONSISTENCY is "eventual": want strong`},
		{"ONCE_PARTITION_KEY", "PK", Options{PartitionKey: "PK"}, ""},
		{"ONCE_SORT_KEY", "SK", Options{SortKey: "SK"}, ""},
		{"ONCE_PREFIX", "ONCE#", Options{Prefix: "ONCE#"}, ""},
		{"ONCE_TTL_ATTRIBUTE", "expires", Options{TTLAttribute: "expires"}, ""},
		{"ONCE_INDEX_RUNNING", "false", Options{}, `ONCE_INDEX_RUNNING is set, and IndexRunning does not exist any more: remove it`},
		{"ONCE_SCAN_EVERY", "15", Options{}, `ONCE_SCAN_EVERY is "15": want a duration like 12h, or off`},
		{"ONCE_SCAN_SEGMENTS", "four", Options{}, `ONCE_SCAN_SEGMENTS is "four": want a number`},
	} {
		t.Run(row.variable+"="+row.value, func(t *testing.T) {
			t.Parallel()
			got := Options{ConflictAttempts: 7, ScanUnits: 8} // of the program
			FromEnvironment(func(name string) string { return map[string]string{row.variable: row.value}[name] })(&got)
			if row.err != "" {
				if _, err := New(&dynamodb.Client{}, "once", func(o *Options) { *o = got }); err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("got error %v, want %q", err, row.err)
				}
				return
			}
			row.want.ConflictAttempts, row.want.ScanUnits, row.want.read = 7, 8, true
			if got != row.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The options have their documented defaults, and bounds.
func TestOptions_Scan(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		set, want Options
		err       string
	}{
		{Options{}, Options{ConflictAttempts: 20, ScanEvery: 24 * time.Hour, ScanSegments: 1, ScanUnits: 1000, PartitionKey: "pk", TTLAttribute: "ttl"}, ""},
		{Options{ScanEvery: time.Hour, ScanSegments: 1000, ScanUnits: 1}, Options{ConflictAttempts: 20, ScanEvery: time.Hour, ScanSegments: 1000, ScanUnits: 1, PartitionKey: "pk", TTLAttribute: "ttl"}, ""},
		{Options{ScanSegments: 1001}, Options{}, "ScanSegments is 1001"},
		{Options{ScanSegments: -1}, Options{}, "ScanSegments is -1"},
		{Options{ScanUnits: -1}, Options{}, "ScanUnits is -1"},
	} {
		got := row.set
		err := got.setDefaults()
		if row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) || row.err == "" && (err != nil || got != row.want) {
			t.Errorf("%+v: got %+v, %v", row.set, got, err)
		}
	}
}
