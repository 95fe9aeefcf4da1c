// SPDX-License-Identifier: Apache-2.0

package tabledef

import (
	"testing"
	"time"
)

// Each variable sets its setting, and the error names the variable and what it may be.
func TestRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		variable, value string
		want            Settings
		err             string
	}{
		{"ONCE_TABLE", "once", Settings{Table: "once"}, ""},
		{"ONCE_CHUNK_TABLE", "once-chunks", Settings{ChunkTable: "once-chunks"}, ""},
		{"ONCE_SCAN_EVERY", "1h", Settings{ScanEvery: time.Hour}, ""},
		{"ONCE_SCAN_EVERY", "off", Settings{ScanEvery: -1}, ""},
		{"ONCE_SCAN_EVERY", "15", Settings{}, `ONCE_SCAN_EVERY is "15": want a duration like 12h, or off`},
		{"ONCE_SCAN_SEGMENTS", "4", Settings{ScanSegments: 4}, ""},
		{"ONCE_SCAN_SEGMENTS", "four", Settings{}, `ONCE_SCAN_SEGMENTS is "four": want a number`},
		{"ONCE_CONSISTENCY", "strong", Settings{Consistency: "strong"}, ""},
		{"ONCE_CONSISTENCY", "eventual", Settings{Consistency: "eventual"}, `ONCE_CONSISTENCY is "eventual": want strong`},
		{"ONCE_PARTITION_KEY", "PK", Settings{PartitionKey: "PK"}, ""},
		{"ONCE_SORT_KEY", "SK", Settings{SortKey: "SK"}, ""},
		{"ONCE_PREFIX", "ONCE#", Settings{Prefix: "ONCE#"}, ""},
		{"ONCE_TTL_ATTRIBUTE", "expires", Settings{TTLAttribute: "expires"}, ""},
	} {
		for name, suffix := range map[string]string{"": "", "old-orders": "_OLD_ORDERS"} {
			got, err := Read(func(variable string) string { return map[string]string{row.variable + suffix: row.value}[variable] }, name)
			want := row.err
			if want != "" && suffix != "" {
				want = row.variable + suffix + row.err[len(row.variable):]
			}
			if got != row.want || (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%s=%s: got %+v, %v", row.variable+suffix, row.value, got, err)
			}
		}
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{"orders": true, "old-orders-2": true, "": false, "Orders": false, "old_orders": false, "ö": false} {
		if err := CheckName(name); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
