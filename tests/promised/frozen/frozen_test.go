// SPDX-License-Identifier: Apache-2.0

// Package frozen compares what users rely on with the files of this folder: stored
// records and the names of metrics. RELEASING.md has the promises, and how to change
// one.
package frozen

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/attributejson"
	"github.com/once-lambda/once/telemetry"
)

var update = flag.Bool("update", false, "write the files of this folder from today's code; see RELEASING.md")

// medium is where a store keeps records. A record is an object of JSON here.
type medium interface {
	open() (driver.Store, func() error, error)
	dump() (map[string]object, error) // by record id
	restore(map[string]object) error
}

type object = map[string]any

var media = map[string]func(t *testing.T) medium{
	"dynamostore": func(*testing.T) medium { return table{dynamotest.New("records")} },
	"boltstore":   func(t *testing.T) medium { return file(filepath.Join(t.TempDir(), "once.db")) },
}

// A later version replays, continues and settles what this version stored, and finds
// it under the same keys.
func TestRecordsAreRead(t *testing.T) {
	t.Parallel()
	for name, newMedium := range media {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frozen := readRecords(t, name)
			for _, s := range stories {
				t.Run(s.name, func(t *testing.T) {
					m := newMedium(t)
					if err := m.restore(frozen); err != nil {
						t.Fatal(err)
					}
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(time.Hour)
						tell(t, m, s.later)
					})
				})
			}
		})
	}
}

// This version stores what the frozen records hold, so that a version before it can
// read them.
func TestRecordsAreWritten(t *testing.T) {
	t.Parallel()
	for name, newMedium := range media {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMedium(t)
			synctest.Test(t, func(t *testing.T) {
				for _, s := range stories {
					tell(t, m, s.begin)
				}
			})
			got, err := m.dump()
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				writeRecords(t, name, got)
			}
			want := readRecords(t, name)
			for id := range maps.Keys(got) {
				if want[id] == nil {
					t.Errorf("%s is a new record", id)
				}
			}
			for id := range want {
				if g, w := members(t, got[id]), members(t, want[id]); !reflect.DeepEqual(g, w) {
					t.Errorf("%s is\n%v\nand was\n%v", id, g, w)
				}
			}
		})
	}
}

func tell(t *testing.T, m medium, part func(*fixture)) {
	t.Helper()
	store, stop, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	part(&fixture{t: t, store: store})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func recordsFile(name string) string { return filepath.Join("records", name+".json") }

func readRecords(t *testing.T, name string) (records map[string]object) {
	t.Helper()
	data, err := os.ReadFile(recordsFile(name))
	if err == nil {
		err = json.Unmarshal(data, &records)
	}
	if err != nil || len(records) < len(stories) {
		t.Fatalf("%d records, %v", len(records), err)
	}
	return records
}

// writeRecords writes a record on each line.
func writeRecords(t *testing.T, name string, records map[string]object) {
	t.Helper()
	lines := make([]string, 0, len(records))
	for id, record := range records {
		line, err := json.Marshal(map[string]object{id: record})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line[1:len(line)-1]))
	}
	slices.Sort(lines)
	if err := os.WriteFile(recordsFile(name), []byte("{\n"+strings.Join(lines, ",\n")+"\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// members returns what a record holds, without its random ids, and with a compressed
// result as text: compressed bytes may differ between versions of the library.
func members(t *testing.T, record object) object {
	t.Helper()
	all := object{}
	for name, value := range record {
		if typed, ok := value.(object); ok && len(typed) == 1 { // an attribute of DynamoDB
			for _, inside := range typed {
				value = inside
			}
		}
		all[name] = value
	}
	all["own"], all["wid"] = "random", "random"
	if encoding, _ := all["enc"].(string); strings.Contains(encoding, "+br") {
		text, err := io.ReadAll(brotli.NewReader(bytes.NewReader(fromBase64(all["res"].(string))[4:]))) // after the checksum
		if err != nil {
			t.Fatal(err)
		}
		all["res"] = string(text)
	}
	return all
}

// table keeps records in DynamoDB in memory. A value is an object, {"S": "text"}.
type table struct{ db *dynamotest.DB }

func (m table) open() (driver.Store, func() error, error) {
	store, err := dynamostore.New(m.db, "records")
	return store, func() error { return nil }, err
}

func (m table) dump() (map[string]object, error) {
	page, err := m.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("records")})
	if err != nil {
		return nil, err
	}
	all := map[string]object{}
	for _, item := range page.Items {
		record := object{}
		for name, v := range item {
			var value object
			if err := json.Unmarshal(attributejson.Marshal(v), &value); err != nil {
				return nil, err
			}
			record[name] = value
		}
		delete(record, "pk")
		all[item["pk"].(*types.AttributeValueMemberS).Value] = record
	}
	return all, nil
}

func (m table) restore(all map[string]object) error {
	for id, record := range all {
		item := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}
		for name, v := range record {
			data, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if item[name], err = attributejson.Unmarshal(data); err != nil {
				return err
			}
		}
		if _, err := m.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String("records"), Item: item}); err != nil {
			return err
		}
	}
	return nil
}

// file keeps records in a file. Each is the CRC-32C of its id and the rest in four
// bytes, and an object of JSON.
type file string

var bucket = []byte("once.records")

func (m file) open() (driver.Store, func() error, error) {
	store, err := boltstore.Open(string(m))
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}

func (m file) dump() (all map[string]object, err error) {
	db, err := bbolt.Open(string(m), 0o600, nil)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	all = map[string]object{}
	return all, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(id, stored []byte) error {
			var record object
			err := json.Unmarshal(stored[4:], &record)
			all[string(id)] = record
			return err
		})
	})
}

func (m file) restore(all map[string]object) error {
	db, err := bbolt.Open(string(m), 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		for id, record := range all {
			doc, marshalErr := json.Marshal(record)
			sum := crc32.Checksum(append([]byte(id), doc...), crc32.MakeTable(crc32.Castagnoli))
			err = errors.Join(err, marshalErr, b.Put([]byte(id), append(binary.BigEndian.AppendUint32(nil, sum), doc...)))
		}
		return errors.Join(err, b.SetSequence(uint64(len(all)))) // the number of records
	})
}

func fromBase64(s string) []byte {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return data
}

// The metrics have their names. Dashboards and alarms of users contain them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, m := range telemetry.Metrics() {
		fmt.Fprintln(&text, m.Name)
	}
	compare(t, "metrics.txt", text.String())
}

// compare compares got with a file, line by line.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || len(want) == 0 {
		t.Fatalf("%s has %d bytes, %v", file, len(want), err)
	}
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	for _, line := range lines(string(want)) {
		if !slices.Contains(lines(got), line) {
			t.Errorf("%s: this is gone or has changed: %s", file, line)
		}
	}
	for _, line := range lines(got) {
		if !slices.Contains(lines(string(want)), line) {
			t.Errorf("%s: this is new: %s", file, line)
		}
	}
}
