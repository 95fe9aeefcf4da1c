// SPDX-License-Identifier: Apache-2.0

package operate

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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

// Choose returns the selected table or file: from the flags, or else from the
// environment.
func (f StoreFlags) Choose(getenv func(string) string) (table, file string, err error) {
	table, file = f.Table, f.File
	if f.Name != "" && (table != "" || file != "") {
		return "", "", Usage("--store %s names the variables of a store, so --table and --file are not allowed", f.Name)
	}
	inTable, inFile := f.Variable("ONCE_TABLE"), f.Variable("ONCE_FILE")
	if table == "" && file == "" {
		table, file = getenv(inTable), getenv(inFile)
	}
	switch {
	case table != "" && file != "":
		return "", "", Usage("both a table (%s) and a file (%s) are named; name one store", table, file)
	case table == "" && file == "":
		return "", "", Usage("no store is named; use --table NAME or --file PATH, or set %s or %s", inTable, inFile)
	case file != "" && cmp.Or(f.Region, f.Profile, f.Endpoint, f.ChunkTable, f.PartitionKey, f.SortKey, f.Prefix, f.TTLAttribute, f.Consistency) != "":
		return "", "", Usage("%s is a file; --region, --profile, --endpoint, --chunk-table, --partition-key, --sort-key, --prefix, --ttl-attribute and --consistency are for a table", file)
	}
	return table, file, nil
}

// Open opens the selected store, which has to exist.
func (e *Env) Open(ctx context.Context) (Store, error) { return e.OpenStore(ctx, false) }

// OpenStore opens the selected store. With create a file may be missing.
func (e *Env) OpenStore(ctx context.Context, create bool) (Store, error) {
	table, file, err := e.Flags.Choose(e.Getenv)
	if err != nil {
		return nil, err
	}
	if file != "" {
		return OpenFile(file, create)
	}
	return e.openTable(ctx, table)
}

// OpenFile opens a store file. It creates a missing file only if create is set, so
// that a mistyped name does not become an empty store.
func OpenFile(path string, create bool) (Store, error) {
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
	return file{s, path}, nil
}

// file is the store in a file.
type file struct {
	*boltstore.Store
	path string
}

// Scan lists every record.
func (f file) Scan(ctx context.Context, _ ...func(*dynamostore.ScanOptions)) iter.Seq2[driver.Record, error] {
	return f.All(ctx)
}

// PurgeChunks returns 0: in a file every result is in its record.
func (file) PurgeChunks(context.Context, time.Time, ...func(*dynamostore.PurgeOptions)) (int, error) {
	return 0, nil
}

func (f file) Name() string { return "file " + f.path }

func (file) Size(context.Context) (int, int) { return 0, 0 }

func (file) Caller(context.Context) string { return "" }

func (file) Alien(context.Context) error { return nil }

func (f file) Whole() Store { return f }

func (file) Scheduled() *dynamostore.Store { return nil }

const (
	// callTimeout limits one request to AWS, so that the operator does not wait
	// without limit.
	callTimeout = 30 * time.Second
	// askTimeout limits requests for optional information.
	askTimeout = 3 * time.Second
)

// openTable returns the store in a table. It checks region and credentials, but
// not the table.
func (e *Env) openTable(ctx context.Context, name string) (Store, error) {
	cfg, err := e.awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := e.Dynamo(cfg)
	set, err := tabledef.Read(e.Setting, e.Flags.Name)
	if err != nil {
		return nil, Usage("%v", err)
	}
	settings := func(o *dynamostore.Options) { set.Fill(o) }
	wholeScans := func(o *dynamostore.Options) { o.ScanEvery = -1 } // at once
	s, err := dynamostore.New(client, name, settings, wholeScans)
	if err != nil {
		return nil, Usage("%v", err)
	}
	scheduled, _ := dynamostore.New(client, name, settings) // as valid as the other, and the next
	meter := e.reading("reading the table for a list", 0)
	whole, _ := dynamostore.New(client, name, settings, wholeScans, func(o *dynamostore.Options) {
		o.NoIndex = &dynamostore.ScanOptions{Progress: meter.Read}
	})
	t := table{Store: s, env: e, cfg: cfg, client: client, scheduled: scheduled, whole: whole}
	t.over = func(c dynamostore.Client) *dynamostore.Store {
		s, _ := dynamostore.New(c, name, settings)
		return s
	}
	if e.Flags.NoIndex {
		return t.Whole(), nil
	}
	return t, nil
}

// table is the store in a table.
type table struct {
	*dynamostore.Store
	env       *Env
	cfg       aws.Config
	client    dynamostore.Client
	scheduled *dynamostore.Store
	whole     *dynamostore.Store // whose lists read the whole table
	over      func(dynamostore.Client) *dynamostore.Store
}

func (t table) Name() string                  { return fmt.Sprintf("table %s in %s", t.whole.Table(), t.cfg.Region) }
func (t table) Scheduled() *dynamostore.Store { return t.scheduled }

// Whole returns the table with lists that read it all.
func (t table) Whole() Store {
	t.Store = t.whole
	return t
}

// PurgeChunks shows how many items it has read.
func (t table) PurgeChunks(ctx context.Context, before time.Time, optFns ...func(*dynamostore.PurgeOptions)) (int, error) {
	items, _ := t.Size(ctx)
	m := t.env.reading("reading the table for pieces of large results", items)
	return t.over(counted{t.client, m}).PurgeChunks(ctx, before, optFns...)
}

// counted is a client whose scans a meter counts.
type counted struct {
	dynamostore.Client
	meter *output.Meter
}

// Scan counts the items.
func (c counted) Scan(ctx context.Context, in *dynamodb.ScanInput, optFns ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	out, err := c.Client.Scan(ctx, in, optFns...)
	if err == nil {
		c.meter.Add(int(out.ScannedCount))
	}
	return out, err
}

// Close does nothing.
func (t table) Close() error { return nil }

// Size returns what DynamoDB updates every six hours, or 0 without permission.
func (t table) Size(ctx context.Context) (items, bytes int) {
	d, err := t.describe(ctx)
	if err != nil {
		return 0, 0
	}
	return int(aws.ToInt64(d.ItemCount)), int(aws.ToInt64(d.TableSizeBytes))
}

// Alien returns an error if the table has another key than a table of once, or not its
// index. Without permission to describe the table it returns nil.
func (t table) Alien(ctx context.Context) error {
	d, err := t.describe(ctx)
	if err != nil {
		return nil
	}
	e := t.env
	keys := []string{cmp.Or(e.Setting(e.Flags.Variable("ONCE_PARTITION_KEY")), tabledef.PartitionKey)}
	if sort := e.Setting(e.Flags.Variable("ONCE_SORT_KEY")); sort != "" {
		keys = append(keys, sort)
	}
	isKey := slices.EqualFunc(d.KeySchema, keys, func(k types.KeySchemaElement, name string) bool {
		return aws.ToString(k.AttributeName) == name
	})
	isIndex := func(i types.GlobalSecondaryIndexDescription) bool {
		return aws.ToString(i.IndexName) == tabledef.IndexName
	}
	if isKey && (e.Flags.NoIndex || slices.ContainsFunc(d.GlobalSecondaryIndexes, isIndex)) {
		return nil
	}
	return fmt.Errorf("nothing was found, and %s is not a table of once, or is not complete: correct --table, --region or --profile; once table check lists the differences", t.Name())
}

func (t table) describe(ctx context.Context) (*types.TableDescription, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := t.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(t.whole.Table())})
	if err != nil {
		return nil, err
	}
	return out.Table, nil
}

// Caller returns the ARN of the AWS caller, or "" if it is not available.
func (t table) Caller(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := sts.NewFromConfig(t.cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}

// Setting returns the value of a variable that describes the table: of its flag, or
// of the environment if that names the table, too.
func (e *Env) Setting(variable string) string {
	f := e.Flags
	value := map[string]string{
		"ONCE_CHUNK_TABLE": f.ChunkTable, "ONCE_PARTITION_KEY": f.PartitionKey, "ONCE_SORT_KEY": f.SortKey,
		"ONCE_PREFIX": f.Prefix, "ONCE_TTL_ATTRIBUTE": f.TTLAttribute, "ONCE_CONSISTENCY": f.Consistency,
	}[strings.TrimSuffix(variable, f.Variable(""))]
	if value == "" && f.Table == "" {
		return e.Getenv(variable)
	}
	return value
}

// awsConfig reads the AWS configuration like the AWS command line, and reports
// what is missing.
func (e *Env) awsConfig(ctx context.Context) (aws.Config, error) {
	f := e.Flags
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
