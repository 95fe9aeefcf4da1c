// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/pathkey"
	"github.com/once-lambda/once/internal/tabledef"
)

// records is the interface of a store that the commands need.
type records interface {
	driver.Store
	driver.DueLister
	// Delete removes a completed or retryable record of that version.
	Delete(ctx context.Context, id idempotent.RecordID, was driver.Version) (current *driver.Record, err error)
}

// opened is an open store.
type opened struct {
	records
	whole records // whose list of due records shows those in progress, too
	name  string  // for output and the audit
	// all lists every record. For a table it calls progress after each page.
	all   func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error]
	items func(ctx context.Context) int    // approximate number of items to read; 0: unknown
	bytes func(ctx context.Context) int    // approximate size of the items of a table; 0: unknown
	scans *dynamostore.Store               // whose scans for abandoned runs a reconciler makes; nil: it makes none
	who   func(ctx context.Context) string // the caller's identity in the store
	check func(ctx context.Context) error  // whether it can be used as a store
	// alien returns an error if the store is not one of once, although it can be
	// read. Commands call it before they report that there is nothing.
	alien func(ctx context.Context) error
	// some lists records of any part of the store, with few reads in parallel.
	some func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error]
	// purgeChunks removes, or counts, chunks of large results that are past their
	// time and that no record refers to.
	purgeChunks func(ctx context.Context, before time.Time, operations []string, dryRun bool) (int, error)
	close       func() error
}

// variable returns the environment variable of the store that --store names.
func (f storeFlags) variable(name string) string { return tabledef.Variable(name, f.Name) }

// choose returns the selected table or file: from the flags, or else from the
// environment.
func (f storeFlags) choose(getenv func(string) string) (table, file string, err error) {
	table, file = f.Table, f.File
	if f.Name != "" && (table != "" || file != "") {
		return "", "", usage("--store %s names the variables of a store, so --table and --file are not allowed", f.Name)
	}
	inTable, inFile := f.variable("ONCE_TABLE"), f.variable("ONCE_FILE")
	if table == "" && file == "" {
		table, file = getenv(inTable), getenv(inFile)
	}
	switch {
	case table != "" && file != "":
		return "", "", usage("both a table (%s) and a file (%s) are named; name one store", table, file)
	case table == "" && file == "":
		return "", "", usage("no store is named; use --table NAME or --file PATH, or set %s or %s", inTable, inFile)
	case file != "" && cmp.Or(f.Region, f.Profile, f.Endpoint, f.ChunkTable, f.PartitionKey, f.SortKey, f.Prefix, f.TTLAttribute, f.Consistency) != "":
		return "", "", usage("%s is a file; --region, --profile, --endpoint, --chunk-table, --partition-key, --sort-key, --prefix, --ttl-attribute and --consistency are for a table", file)
	}
	return table, file, nil
}

// open opens the selected store, which has to exist.
func (e *env) open(ctx context.Context) (*opened, error) { return e.openStore(ctx, false) }

// openStore opens the selected store. With create a file may be missing.
func (e *env) openStore(ctx context.Context, create bool) (*opened, error) {
	table, file, err := e.store.choose(e.getenv)
	if err != nil {
		return nil, err
	}
	if file != "" {
		return openFile(file, create)
	}
	return e.openTable(ctx, table)
}

// onStore is command for a function that uses the store.
func (e *env) onStore(f func(ctx context.Context, o *opened) error) func(*cobra.Command, []string) error {
	return e.command(func(ctx context.Context, _ []string) error {
		o, err := e.open(ctx)
		if err != nil {
			return err
		}
		defer o.close()
		return f(ctx, o)
	})
}

// guard returns a guard over the store, with options that are valid.
func (e *env) guard(o *opened, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	g, _ := e.newGuard(o, optFns...)
	return g
}

// newGuard returns a guard over the store. Only the guard decides what may be written.
func (e *env) newGuard(o *opened, optFns ...func(*idempotent.Options)) (*idempotent.Guard, error) {
	return idempotent.New(o.records, append([]func(*idempotent.Options){func(opts *idempotent.Options) { opts.Now = e.now }}, optFns...)...)
}

// rehearse returns the store without its writes: each one succeeds and changes
// nothing. A guard over it judges evidence as it does when it writes.
func (o *opened) rehearse() *opened {
	dry := *o
	dry.records = rehearsal{o.records}
	return &dry
}

// rehearsal is a store that writes nothing. A guard leaves large results in their
// records, because it is no [driver.ChunkStore].
type rehearsal struct{ records }

// Replace reports success.
func (rehearsal) Replace(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
	return nil, nil
}

// waiting lists the records that wait for reconciliation, due or not, and those
// that were given up. Every unknown record is among them. A record that moves
// between the two lists meanwhile is listed once.
func (o *opened) waiting(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		seen := map[idempotent.RecordID]bool{}
		for _, list := range []iter.Seq2[driver.Listed, error]{o.Due(ctx, time.Time{}), o.Exhausted(ctx)} {
			for e, err := range list {
				if seen[e.ID] {
					continue
				}
				seen[e.ID] = true
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// readParallel is how many records of a list are read at the same time.
const readParallel = 16

// parallel calls f for every task, some of them at the same time.
func parallel[T any](tasks iter.Seq2[int, T], limit int, f func(i int, t T)) {
	var workers sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i, t := range tasks {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			f(i, t)
		})
	}
	workers.Wait()
}

// selects reports whether id belongs to one of the operations. No operations select
// every id.
func selects(operations []string, id idempotent.RecordID) bool {
	return len(operations) == 0 || slices.Contains(operations, id.Operation())
}

// exhausted yields the records of the operations that reconciliation has given up.
func (o *opened) exhausted(ctx context.Context, operations []string) iter.Seq2[driver.Record, error] {
	return o.read(ctx, o.Exhausted(ctx), operations, func(r *driver.Record) bool { return r.Exhausted })
}

// read yields the records of the operations that a list names, in its order, if still
// holds for the record. An entry may be outdated, and its record may be gone.
func (o *opened) read(
	ctx context.Context, list iter.Seq2[driver.Listed, error], operations []string, still func(*driver.Record) bool,
) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var batch []driver.Listed
		flush := func() bool {
			records, errs := make([]*driver.Record, len(batch)), make([]error, len(batch))
			parallel(slices.All(batch), readParallel, func(i int, e driver.Listed) { records[i], errs[i] = o.Get(ctx, e.ID) })
			for i, e := range batch {
				switch {
				case errors.Is(errs[i], idempotent.ErrNoRecord):
				case errs[i] != nil:
					if !yield(driver.Record{ID: e.ID}, errs[i]) {
						return false
					}
				case still(records[i]) && !yield(*records[i], nil):
					return false
				}
			}
			batch = batch[:0]
			return true
		}
		for e, err := range list {
			switch {
			case e.ID == "":
				if flush() {
					yield(driver.Record{}, err)
				}
				return
			case selects(operations, e.ID):
				batch = append(batch, e)
			}
			if len(batch) == readParallel && !flush() {
				return
			}
		}
		flush()
	}
}

// openFile opens a store file. It creates a missing file only if create is set, so
// that a mistyped name does not become an empty store.
func openFile(path string, create bool) (*opened, error) {
	info, err := os.Stat(path)
	switch {
	case create:
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s; correct the name, or create it with once table create --file %s", path, path)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0:
		return nil, fmt.Errorf("%s is empty, so it is not a store; correct the name, or make it one with once table create --file %s", path, path)
	}
	s, err := boltstore.Open(path, func(o *boltstore.Options) { o.KeepExpired = true })
	if err != nil {
		return nil, err
	}
	all := func(ctx context.Context, _ func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
		return s.All(ctx)
	}
	return &opened{
		records: s, whole: s, all: all, some: all,
		name:  "file " + path,
		items: func(context.Context) int { return 0 },
		bytes: func(context.Context) int { return 0 },
		who:   func(context.Context) string { return "" },
		check: func(context.Context) error { return nil }, // opening it has checked everything
		alien: func(context.Context) error { return nil },
		close: s.Close,
		// In a file every result is in its record, so there are no chunks.
		purgeChunks: func(context.Context, time.Time, []string, bool) (int, error) { return 0, nil },
	}, nil
}

const (
	// callTimeout limits one request to AWS, so that the operator does not wait
	// without limit.
	callTimeout = 30 * time.Second
	// askTimeout limits requests for optional information.
	askTimeout = 3 * time.Second
)

// openTable returns the store in a table. It checks region and credentials, but
// not the table.
func (e *env) openTable(ctx context.Context, table string) (*opened, error) {
	cfg, err := e.awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := e.dynamo(cfg)
	set, err := tabledef.Read(e.setting, e.store.Name)
	if err != nil {
		return nil, usage("%v", err)
	}
	settings := func(o *dynamostore.Options) {
		o.ChunkTable, o.Consistency, o.ScanEvery, o.ScanSegments = set.ChunkTable, dynamostore.Consistency(set.Consistency), set.ScanEvery, set.ScanSegments
		o.PartitionKey, o.SortKey, o.Prefix, o.TTLAttribute = set.PartitionKey, set.SortKey, set.Prefix, set.TTLAttribute
	}
	wholeScans := func(o *dynamostore.Options) { o.ScanEvery = -1 } // at once
	s, err := dynamostore.New(client, table, settings, wholeScans)
	if err != nil {
		return nil, usage("%v", err)
	}
	scheduled, _ := dynamostore.New(client, table, settings) // as valid as the other, and the next
	meter := e.meter("reading the table for a list", 0)
	whole, _ := dynamostore.New(client, table, settings, wholeScans, func(o *dynamostore.Options) {
		o.NoIndex = &dynamostore.ScanOptions{Progress: meter.read}
	})
	scan := func(segments int) func(context.Context, func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
		return func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
			return s.Scan(ctx, func(o *dynamostore.ScanOptions) { o.Progress, o.Segments = progress, segments })
		}
	}
	o := &opened{
		records: s,
		name:    fmt.Sprintf("table %s in %s", table, cfg.Region),
		all:     scan(0), // the default
		some:    scan(1),
		items:   func(ctx context.Context) int { items, _ := tableSize(ctx, client, table); return items },
		bytes:   func(ctx context.Context) int { _, bytes := tableSize(ctx, client, table); return bytes },
		who:     func(ctx context.Context) string { return callerOf(ctx, cfg) },
		check:   scheduled.Check,
		scans:   scheduled,
		alien:   func(ctx context.Context) error { return e.alienTable(ctx, client, table, cfg.Region) },
		close:   func() error { return nil },
		purgeChunks: func(ctx context.Context, before time.Time, operations []string, dryRun bool) (int, error) {
			return s.PurgeChunks(ctx, before, func(o *dynamostore.PurgeOptions) { o.Operations, o.DryRun = operations, dryRun })
		},
	}
	o.whole = whole
	o.close = func() error { meter.end(); return nil }
	if e.store.NoIndex {
		o.records = o.whole
	}
	return o, nil
}

// setting returns the value of a variable that describes the table: of its flag, or
// of the environment if that names the table, too.
func (e *env) setting(variable string) string {
	f := e.store
	value := map[string]string{
		"ONCE_CHUNK_TABLE": f.ChunkTable, "ONCE_PARTITION_KEY": f.PartitionKey, "ONCE_SORT_KEY": f.SortKey,
		"ONCE_PREFIX": f.Prefix, "ONCE_TTL_ATTRIBUTE": f.TTLAttribute, "ONCE_CONSISTENCY": f.Consistency,
	}[strings.TrimSuffix(variable, f.variable(""))]
	if value == "" && f.Table == "" {
		return e.getenv(variable)
	}
	return value
}

// noScanFlag adds the flag --no-scan.
func noScanFlag(cmd *cobra.Command, noScan *bool) {
	cmd.Flags().BoolVar(noScan, "no-scan", false, "only records in the index of the table: not\nabandoned runs that still count as in progress")
}

// awsConfig reads the AWS configuration like the AWS command line, and reports
// what is missing.
func (e *env) awsConfig(ctx context.Context) (aws.Config, error) {
	f := e.store
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(f.Region), config.WithSharedConfigProfile(f.Profile), config.WithBaseEndpoint(f.Endpoint),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(callTimeout)))
	if err != nil {
		return cfg, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return cfg, errors.New("missing AWS region: use --region, for example --region eu-central-1, or set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		advice := "log in, use --profile, or set AWS_PROFILE"
		if isLocal(aws.ToString(cfg.BaseEndpoint)) {
			advice = "LocalStack and DynamoDB Local accept any: set AWS_ACCESS_KEY_ID=test and AWS_SECRET_ACCESS_KEY=test"
		}
		return cfg, fmt.Errorf("no AWS credentials were found; %s: %w", advice, err)
	}
	return cfg, nil
}

// isLocal reports whether endpoint is on this machine.
func isLocal(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip.IsLoopback()
}

// tableSize returns the approximate number of items of the table and their size,
// which DynamoDB updates every six hours. It returns 0 without permission.
func tableSize(ctx context.Context, client dynamostore.Client, table string) (items, bytes int) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return 0, 0
	}
	return int(aws.ToInt64(out.Table.ItemCount)), int(aws.ToInt64(out.Table.TableSizeBytes))
}

// alienTable returns an error if the table has another key than a table of once, or
// not its index. Without permission to describe the table it returns nil.
func (e *env) alienTable(ctx context.Context, client dynamostore.Client, table, region string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return nil
	}
	keys := []string{cmp.Or(e.setting(e.store.variable("ONCE_PARTITION_KEY")), tabledef.PartitionKey)}
	if sort := e.setting(e.store.variable("ONCE_SORT_KEY")); sort != "" {
		keys = append(keys, sort)
	}
	isKey := slices.EqualFunc(out.Table.KeySchema, keys, func(k types.KeySchemaElement, name string) bool {
		return aws.ToString(k.AttributeName) == name
	})
	isIndex := func(i types.GlobalSecondaryIndexDescription) bool {
		return aws.ToString(i.IndexName) == tabledef.IndexName
	}
	if isKey && (e.store.NoIndex || slices.ContainsFunc(out.Table.GlobalSecondaryIndexes, isIndex)) {
		return nil
	}
	return fmt.Errorf("nothing was found, and table %s in %s is not a table of once, or is not complete: correct --table, --region or --profile; once table check lists the differences", table, region)
}

// callerOf returns the ARN of the AWS caller, or "" if it is not available.
func callerOf(ctx context.Context, cfg aws.Config) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}

// target selects one record by the parts of its key. Without them the argument
// is its id or a shortened id.
type target struct {
	scope, key, path string
	global, scan     bool
	ref              string // of the record, in place of its name
}

// recordHelp describes the argument RECORD.
const recordHelp = `RECORD is a record id; or a shortened id from a list or a log, at least # and
12 characters; or an operation, with --key and --scope or --global.`

// oneRecord checks the arguments of a command about one record.
func oneRecord(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one RECORD, got %d arguments; quote a record that contains spaces", len(args))
	}
	return nil
}

// flags adds the flags of a command about one record, if it does not check its arguments.
func (t *target) flags(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = oneRecord
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	f := cmd.Flags()
	f.StringVar(&t.scope, "scope", "", "with an operation: the `SCOPE` of the key, a\ntenant or principal")
	f.BoolVar(&t.global, "global", false, "with an operation: its scope is\nidempotent.Global (lambdahttp.SingleTenant)")
	f.StringVar(&t.key, "key", "", "with an operation: the client's idempotency\n`KEY`, without quotes")
	f.StringVar(&t.path, "path", "", "with --key: the `PATH` of an HTTP request whose\nkey belongs to a path (see docs/http-keys.md)")
	f.BoolVar(&t.scan, "scan", false, "search the whole table for a shortened id, not\nonly the records that wait for reconciliation")
}

const (
	// minHash is the number of characters of a hash that select a record. Lists
	// and logs show as many.
	minHash = 12
	// hashLength is the length of a hash: SHA-256 in base64.
	hashLength = 43
)

// openRecord opens the store and returns it with the selected record.
func (t *target) openRecord(ctx context.Context, e *env, name string) (*opened, *driver.Record, error) {
	o, err := e.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := t.find(ctx, e, o, name)
	if err != nil {
		o.close()
		return nil, nil, err
	}
	return o, r, nil
}

// find returns the selected record.
func (t *target) find(ctx context.Context, e *env, o *opened, name string) (*driver.Record, error) {
	if t.ref != "" {
		return t.byRef(ctx, e, o)
	}
	id, err := t.id(ctx, e, o, name)
	if err != nil {
		return nil, err
	}
	r, err := o.Get(ctx, id)
	if errors.Is(err, idempotent.ErrNoRecord) {
		return nil, cmp.Or(o.alien(ctx), t.missing(o))
	}
	return r, err
}

// byRef returns the record with the reference.
func (t *target) byRef(ctx context.Context, e *env, o *opened) (*driver.Record, error) {
	list := o.read(ctx, o.waiting(ctx), nil, func(*driver.Record) bool { return true })
	if t.scan {
		m := e.meter("looking for the reference", o.items(ctx))
		defer m.end()
		list = o.all(ctx, m.read)
	}
	var found *driver.Record
	for r, err := range list {
		switch {
		case r.ID == "":
			return nil, err
		case r.Ref != t.ref: // a record that cannot be read has no reference here
		case found != nil:
			return nil, usage("%s and %s both have that reference; give one of these ids", found.ID, r.ID)
		default:
			found = &r
		}
	}
	switch {
	case found != nil:
		return found, nil
	case o.alien(ctx) != nil:
		return nil, o.alien(ctx)
	case t.scan:
		return nil, fmt.Errorf("%w: no record in %s has that reference; once list --ref also finds a part of one", idempotent.ErrNoRecord, o.name)
	}
	return nil, fmt.Errorf("%w: no record that waits for reconciliation has that reference; search all of %s with --scan: a killed run may not wait yet", idempotent.ErrNoRecord, o.name)
}

// missing returns the error for a missing record, with possible reasons.
func (t *target) missing(o *opened) error {
	hint := "it was never claimed, or has expired and is gone"
	if t.key != "" {
		hint = "check that each part is as in the handler: operation, scope and key make the id together, and --path if the key of an HTTP request belongs to a path; " +
			"UUIDs are in lower case with the UUID profile"
		if strings.HasPrefix(t.key, `"`) {
			hint = "the key has quotes here; a handler gets it without the quotes of the header"
		}
	}
	return fmt.Errorf("%w in %s (%s)", idempotent.ErrNoRecord, o.name, hint)
}

// id returns the id of the selected record.
func (t *target) id(ctx context.Context, e *env, o *opened, name string) (idempotent.RecordID, error) {
	if t.key != "" || t.scope != "" || t.global || t.path != "" {
		return t.fromKey(name)
	}
	i := strings.LastIndexByte(name, '#')
	if i < 0 {
		return "", usage("invalid record id %q; if it is an operation, add --key and --scope (or --global)", name)
	}
	operation, hash := name[:i], name[i+1:]
	whole := operation != "" && len(hash) == hashLength
	if !whole && len(hash) >= minHash && len(hash) <= hashLength {
		return t.search(ctx, e, o, operation, hash)
	}
	id, err := idempotent.ParseRecordID(name)
	if err != nil {
		return "", usage("invalid record id %q: want OPERATION#HASH with %d characters after #, or # and at least the first %d of them", name, hashLength, minHash)
	}
	return id, nil
}

func (t *target) fromKey(operation string) (idempotent.RecordID, error) {
	scope := t.scope
	switch {
	case t.key == "":
		return "", usage("--scope, --global and --path need the client's key: add --key")
	case t.global && scope != "":
		return "", usage("--global means no scope, but --scope is set")
	case t.global:
		scope = idempotent.Global
	case scope == "":
		return "", usage("--key needs the scope: add --scope, or --global if the operation has none")
	}
	key := t.key
	if t.path != "" {
		key = pathkey.ID(t.path, key)
	}
	id, err := idempotent.ParseRecordID(string(idempotent.Key{Operation: operation, Scope: scope, ID: key}.RecordID()))
	if err != nil {
		return "", usage("%v", err)
	}
	return id, nil
}

// search returns the only record that matches a shortened id. The operation may be
// missing.
func (t *target) search(ctx context.Context, e *env, o *opened, operation, hash string) (idempotent.RecordID, error) {
	list := o.waiting(ctx)
	if t.scan {
		m := e.meter("looking for the record", o.items(ctx))
		defer m.end()
		list = func(yield func(driver.Listed, error) bool) {
			o.all(ctx, m.read)(func(r driver.Record, err error) bool { return yield(r.Listed(), err) })
		}
	}
	var found idempotent.RecordID
	for e, err := range list {
		of := e.ID.Operation()
		switch {
		case e.ID == "":
			return "", err
		case operation != "" && operation != of, !strings.HasPrefix(string(e.ID)[len(of):], "#"+hash):
		case found != "":
			return "", usage("%s and %s both match; give one of these ids in full", found, e.ID)
		default:
			found = e.ID
		}
	}
	switch {
	case found != "":
		return found, nil
	case o.alien(ctx) != nil:
		return "", o.alien(ctx)
	case t.scan:
		return "", fmt.Errorf("%w: no record in %s has an id like %s", idempotent.ErrNoRecord, o.name, operation+"#"+hash)
	}
	return "", fmt.Errorf("%w: no record that waits for reconciliation has an id like %s; search all of %s with --scan, or use the full id or the key", idempotent.ErrNoRecord, operation+"#"+hash, o.name)
}
