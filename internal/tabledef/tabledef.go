// SPDX-License-Identifier: Apache-2.0

// Package tabledef has what package dynamostore, the command line and infrastructure code
// must name alike about a table: its attributes, its index, and the environment variables
// that describe it.
package tabledef

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The schema of a table. Functions of different versions share one table, so it is fixed,
// except for the two names that options can change.
const (
	// PartitionKey is the default name of the partition key, a string: the prefix and the
	// record id. Without a sort key it is the table's only key attribute.
	PartitionKey = "pk"
	// TTLAttribute is the default name of the attribute of the table's time to live. It is
	// a number: seconds since 1970.
	TTLAttribute = "ttl"
	// IndexName is the global secondary index of the records that reconciliation has to
	// find. It projects the keys and [IndexAttributes].
	IndexName = "recovery"
	// IndexPartitionKey is the index's partition key, a string.
	IndexPartitionKey = "rk"
	// IndexSortKey is the index's sort key, a number: when the record is due, in
	// milliseconds since 1970.
	IndexSortKey = "rat"
	// ScanKey is the partition key, without the prefix, of the item in which the scans for
	// abandoned runs note how far they are. No record has it, because record ids begin with
	// an operation.
	ScanKey = "#scan"
	// OpenKey is the partition key, without the prefix, that a function reads while it
	// starts. No item has it.
	OpenKey = "#open"
)

// The attributes that the index projects besides its keys.
const (
	State    = "st"    // of a record
	Settled  = "dt"    // since when it has that state
	LeaseEnd = "lease" // the end of its lease
)

// IndexAttributes returns the attributes that the index projects besides its keys. With
// them a reconciler decides which records to read, and knows how long the others wait. They
// never change without the keys of the index, so they make no write more expensive.
func IndexAttributes() []string { return []string{State, Settled, LeaseEnd} }

// Variable returns the environment variable of the table with that name: ONCE_TABLE_ORDERS
// for ONCE_TABLE and orders. Letters of the name become upper case, and a hyphen becomes an
// underscore. Without a name it returns variable.
func Variable(variable, name string) string {
	if name == "" {
		return variable
	}
	return variable + "_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// CheckName returns an error if name cannot be that of a table.
func CheckName(name string) error {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("invalid name %q: want a-z, 0-9 and -", name)
	}
	return nil
}

// Settings is what the environment says of a table. A zero value means that its variable is
// not set. All fields but Table are named like those of dynamostore.Options.
type Settings struct {
	Table, ChunkTable                           string
	PartitionKey, SortKey, Prefix, TTLAttribute string
	Consistency                                 string
	ScanEvery                                   time.Duration // negative: off
	ScanSegments                                int
}

// Strong is the only value of ONCE_CONSISTENCY.
const Strong = "strong"

// Read returns the settings of the table with that name, or of the only one if name is
// empty, and an error for an invalid name, and for each variable with an invalid value. getenv is usually [os.Getenv].
func Read(getenv func(string) string, name string) (s Settings, err error) {
	if name != "" {
		if err := CheckName(name); err != nil {
			return s, err
		}
	}
	for variable, setting := range map[string]*string{
		"ONCE_TABLE": &s.Table, "ONCE_CHUNK_TABLE": &s.ChunkTable, "ONCE_PARTITION_KEY": &s.PartitionKey, "ONCE_SORT_KEY": &s.SortKey,
		"ONCE_PREFIX": &s.Prefix, "ONCE_TTL_ATTRIBUTE": &s.TTLAttribute, "ONCE_CONSISTENCY": &s.Consistency,
	} {
		*setting = getenv(Variable(variable, name))
	}
	invalid := func(variable, value, want string) {
		err = errors.Join(err, fmt.Errorf("%s is %q: want %s", Variable(variable, name), value, want))
	}
	if s.Consistency != "" && s.Consistency != Strong {
		invalid("ONCE_CONSISTENCY", s.Consistency, Strong)
	}
	switch every := getenv(Variable("ONCE_SCAN_EVERY", name)); every {
	case "":
	case "off":
		s.ScanEvery = -1
	default:
		var failed error
		if s.ScanEvery, failed = time.ParseDuration(every); failed != nil {
			invalid("ONCE_SCAN_EVERY", every, "a duration like 12h, or off")
		}
	}
	if segments := getenv(Variable("ONCE_SCAN_SEGMENTS", name)); segments != "" {
		var failed error
		if s.ScanSegments, failed = strconv.Atoi(segments); failed != nil {
			invalid("ONCE_SCAN_SEGMENTS", segments, "a number")
		}
	}
	return s, err
}

// Fill sets the fields of options, a pointer to dynamostore.Options, for which there are
// variables.
func (s *Settings) Fill(options any) {
	from, to := reflect.ValueOf(*s), reflect.ValueOf(options).Elem()
	for i := range from.NumField() {
		if name := from.Type().Field(i).Name; name != "Table" {
			field := to.FieldByName(name)
			field.Set(from.Field(i).Convert(field.Type()))
		}
	}
}
