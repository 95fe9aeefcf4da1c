// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/tabledef"
)

func TestStore_Choice(t *testing.T) {
	t.Parallel()
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, row := range []struct {
		flags       storeFlags
		getenv      func(string) string
		table, file string
		says        string
	}{
		{storeFlags{}, env(), "", "", "no store is named"},
		{storeFlags{Table: "t", File: "f"}, env(), "", "", "both"},
		{storeFlags{}, env("ONCE_TABLE", "t", "ONCE_FILE", "f"), "", "", "both"},
		{storeFlags{File: "f", Region: "eu-central-1"}, env(), "", "", "for a table"},
		{storeFlags{File: "f", Prefix: "ONCE#"}, env(), "", "", "for a table"},
		{storeFlags{File: "f", Endpoint: "http://127.0.0.1"}, env(), "", "", "for a table"},
		{storeFlags{Table: "t"}, env(), "t", "", ""},
		{storeFlags{File: "f"}, env("ONCE_TABLE", "t"), "", "f", ""},
		{storeFlags{Table: "t"}, env("ONCE_TABLE", "other", "ONCE_FILE", "f"), "t", "", ""},
		{storeFlags{}, env("ONCE_TABLE", "t"), "t", "", ""},
		{storeFlags{}, env("ONCE_FILE", "f"), "", "f", ""},
		{storeFlags{Name: "old-orders"}, env("ONCE_TABLE", "t", "ONCE_TABLE_OLD_ORDERS", "o"), "o", "", ""},
		{storeFlags{Name: "old-orders"}, env("ONCE_TABLE", "t", "ONCE_FILE_OLD_ORDERS", "f"), "", "f", ""},
		{storeFlags{Name: "orders"}, env("ONCE_TABLE", "t"), "", "", "set ONCE_TABLE_ORDERS or ONCE_FILE_ORDERS"},
		{storeFlags{Name: "orders", Table: "t"}, env("ONCE_TABLE_ORDERS", "o"), "", "", "--store orders"},
		{storeFlags{Name: "orders", File: "f"}, env("ONCE_TABLE_ORDERS", "o"), "", "", "--store orders"},
	} {
		table, file, err := row.flags.choose(row.getenv)
		if row.says != "" {
			if exitCode(err) != exitUsage || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%+v: got %v, want %q", row.flags, err, row.says)
			}
		} else if err != nil || table != row.table || file != row.file {
			t.Errorf("%+v: got %q, %q, %v", row.flags, table, file, err)
		}
	}
}

// A setting of the table comes from its flag. The environment describes the table
// that it names, and no other.
func TestSetting(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ONCE_CHUNK_TABLE", "ONCE_PARTITION_KEY", "ONCE_SORT_KEY", "ONCE_PREFIX", "ONCE_TTL_ATTRIBUTE", "ONCE_CONSISTENCY"} {
		w := &environment{getenv: func(asked string) string { return "of " + asked }}
		flags := storeFlags{ChunkTable: "flag", PartitionKey: "flag", SortKey: "flag", Prefix: "flag", TTLAttribute: "flag", Consistency: "flag"}
		for _, store := range []string{"", "orders"} {
			asked := tabledef.Variable(name, store)
			if flags.Name = store; (&env{environment: w, store: flags}).setting(asked) != "flag" {
				t.Errorf("%s is not that of its flag", asked)
			}
			if got := (&env{environment: w, store: storeFlags{Name: store}}).setting(asked); got != "of "+asked {
				t.Errorf("%s is %q, want that of the environment", asked, got)
			}
		}
		if got := (&env{environment: w, store: storeFlags{Table: "t"}}).setting(name); got != "" {
			t.Errorf("%s of another table is %q", name, got)
		}
	}
}
