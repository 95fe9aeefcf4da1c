// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// Every way to select a record finds it.
func TestTarget(t *testing.T) {
	t.Parallel()
	atPath := key("POST (no route)", "acme", lambdahttp.ResourceKey("/orders/caf%C3%A9", "k"))
	d := newDesk(t, append(aNight(t), record(atPath, time.Hour, func(*driver.Record) {}))...)
	want := "record      " + string(chargeKey.RecordID())
	for _, args := range [][]string{
		{"POST /charges", "--global", "--key", "b7a36f90-1e4d-4d52-8c7f-92e5d0ab4613"},
		{string(chargeKey.RecordID())},
		{"POST /charges#4RexMqXSY3Lf"},
		{"POST /charges#4RexMqXSY3Lfp_z0"},
		{"#4RexMqXSY3Lf"}, // as in a log line
		{"#4RexMqXSY3Lf", "--scan"},
		{"#" + strings.SplitAfter(string(chargeKey.RecordID()), "#")[1]},
	} {
		if got := d.once(append([]string{"show"}, args...)...).ok().out; !strings.HasPrefix(got, want) {
			t.Errorf("%q shows\n%s", args, got)
		}
	}
	// The path of an HTTP request can belong to its key, in any spelling.
	d.once("show", "POST (no route)", "--scope", "acme", "--key", "k", "--path", "/orders/café").ok().says("POST (no route)", string(atPath.RecordID()))
	d.once("show", "POST (no route)", "--scope", "acme", "--key", "k").exits(exitNotFound).says("--path")
	// Records that do not wait for reconciliation are found with --scan.
	d.once("show", "#ty7jY4HjuNMR").exits(exitNotFound).says("--scan")
	d.once("show", "#ty7jY4HjuNMR", "--scan").ok().says(string(paidKey.RecordID()))
}

func TestTarget_Refusals(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{exitNotFound, "operation, scope and key make the id together", []string{"POST /charges", "--global", "--key", "0a9e7d52-4c1b-4f83-b6a0-3e8d15c7f294"}},
		{exitNotFound, "the key has quotes", []string{"POST /charges", "--global", "--key", `"b7a36f90-1e4d-4d52-8c7f-92e5d0ab4613"`}},
		{exitNotFound, "expired and is gone", []string{string(key("no", "such", "key").RecordID())}},
		{exitNotFound, "has an id like refund#4RexMqXSY3Lf", []string{"refund#4RexMqXSY3Lf"}}, // another operation's hash
		{exitNotFound, "no record in file once.db has an id like #AAAAAAAAAAAA", []string{"#AAAAAAAAAAAA", "--scan"}},
		{exitUsage, "add --key and --scope", []string{"charge"}},
		{exitUsage, "need the client's key", []string{"charge", "--scope", "acme"}},
		{exitUsage, "need the client's key", []string{"charge", "--global"}},
		{exitUsage, "need the client's key", []string{"charge", "--path", "/"}},
		{exitUsage, "needs the scope", []string{"charge", "--key", "k"}},
		{exitUsage, "no scope", []string{"charge", "--key", "k", "--scope", "acme", "--global"}},
		{exitUsage, "the first 12 of them", []string{"charge#wiF9Nlkg"}},
		{exitUsage, "invalid record id", []string{"charge#" + strings.Repeat("A", 44)}},
		{exitUsage, "invalid record id", []string{"charge#" + strings.Repeat("=", 43)}},
		{exitUsage, "printable", []string{"\x1b[2J", "--key", "k", "--global"}},
		{exitUsage, "RECORD", nil},
	} {
		d.once(append([]string{"show"}, row.args...)...).exits(row.code).says(row.says).saysNot("\x1b")
	}
}

// If a shortened id matches two records, the command fails and names both.
func TestTarget_Ambiguous(t *testing.T) {
	t.Parallel()
	hash := strings.SplitAfter(string(chargeKey.RecordID()), "#")[1]
	twin := unknownCharge()
	twin.ID = idempotent.RecordID("POST /charges-v2#" + hash)
	d := newDesk(t, unknownCharge(), twin)
	d.once("show", "#"+hash[:12]).exits(exitUsage).says("both", string(twin.ID), "in full")
	d.once("show", "POST /charges#"+hash[:12]).ok()
	d.once("show", string(twin.ID)).ok().says(string(twin.ID))
}

// A file that is locked, missing or not named is an error, and a mistyped name
// creates no store.
func TestStore(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	s, err := boltstore.Open(d.file)
	if err != nil {
		t.Fatal(err)
	}
	d.once("list").exits(exitFailure).says("held by another process")
	s.Close()
	d.once("list").ok().says("no such records in file once.db")

	typo := d.file + ".typo"
	d.file = typo
	d.once("list").exits(exitFailure).says("there is no file", "once table create --file")
	d.once("table", "check").exits(exitFailure)
	if err := os.WriteFile(typo, nil, 0o600); err != nil { // a new file, for example of touch
		t.Fatal(err)
	}
	d.once("list").exits(exitFailure).says("is empty, so it is not a store", "once table create --file")
	if err := os.Remove(typo); err != nil {
		t.Fatal(err)
	}
	d.once("table", "create").ok().golden("table-create")
	d.once("list").ok()
}

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
	for _, name := range []string{"ONCE_CHUNK_TABLE", "ONCE_PARTITION_KEY", "ONCE_SORT_KEY", "ONCE_PREFIX", "ONCE_TTL_ATTRIBUTE", "ONCE_INDEX_RUNNING"} {
		w := &world{getenv: func(asked string) string { return "of " + asked }}
		flags := storeFlags{ChunkTable: "flag", PartitionKey: "flag", SortKey: "flag", Prefix: "flag", TTLAttribute: "flag"}
		ofFlag := "flag"
		if name == "ONCE_INDEX_RUNNING" { // which has no flag
			ofFlag = "of " + name
		}
		if got := (&env{world: w, store: flags}).setting(name); got != ofFlag {
			t.Errorf("%s is %q, and its flag %q", name, got, ofFlag)
		}
		if got := (&env{world: w}).setting(name); got != "of "+name {
			t.Errorf("%s is %q, want that of the environment", name, got)
		}
		if got := (&env{world: w, store: storeFlags{Table: "t"}}).setting(name); got != "" {
			t.Errorf("%s of another table is %q", name, got)
		}
	}
}
