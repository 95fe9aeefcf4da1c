// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const listParameters = "TableName IndexName FilterExpression ProjectionExpression ExpressionAttributeNames ExpressionAttributeValues ExclusiveStartKey Limit ConsistentRead ReturnConsumedCapacity Select "

// Query lists the items of one partition in the order of their sort keys, page by
// page. An index is up to date at once.
func (db *DB) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return call(ctx, &db.mu, "Query", in, listParameters+"KeyConditionExpression ScanIndexForward", func(in *dynamodb.QueryInput) *dynamodb.QueryOutput {
		e := newExpressions(in.ExpressionAttributeNames, in.ExpressionAttributeValues)
		if in.KeyConditionExpression == nil {
			refuse("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request")
		}
		r, key := e.keyCondition(*in.KeyConditionExpression) // r refuses other keys
		e.paths = nil
		l := &list{
			filter: e.condition("FilterExpression", in.FilterExpression), names: e.projection(in.ProjectionExpression),
			start: in.ExclusiveStartKey, limit: in.Limit, consistent: aws.ToBool(in.ConsistentRead),
			backward: in.ScanIndexForward != nil && !*in.ScanIndexForward, selects: in.Select, capacity: in.ReturnConsumedCapacity,
		}
		e.done()
		l.filtered = e.paths
		l.open(db.table(in.TableName), in.IndexName)
		l.table.checkPaths(e.entered)
		r(l.keys)
		for _, k := range l.keys {
			if slices.Contains(e.paths, k.name) {
				refuse("Filter Expression can only contain non-primary key attributes: Primary key attribute: %s", k.name)
			}
		}
		l.only(key)
		p := l.page()
		return &dynamodb.QueryOutput{Items: p.items, Count: p.count, ScannedCount: p.scanned, LastEvaluatedKey: p.last, ConsumedCapacity: p.capacity}
	})
}

// Scan lists the items of a table, an index, or a segment, page by page.
func (db *DB) Scan(ctx context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return call(ctx, &db.mu, "Scan", in, listParameters+"Segment TotalSegments", func(in *dynamodb.ScanInput) *dynamodb.ScanOutput {
		e := newExpressions(in.ExpressionAttributeNames, in.ExpressionAttributeValues)
		l := &list{
			filter: e.condition("FilterExpression", in.FilterExpression), names: e.projection(in.ProjectionExpression),
			start: in.ExclusiveStartKey, limit: in.Limit, consistent: aws.ToBool(in.ConsistentRead), selects: in.Select, capacity: in.ReturnConsumedCapacity,
		}
		e.done()
		l.filtered = e.paths
		l.open(db.table(in.TableName), in.IndexName)
		l.table.checkPaths(e.entered)
		if (in.Segment == nil) != (in.TotalSegments == nil) {
			refuse("The Segment parameter is required and TotalSegments too, or neither")
		}
		part := func(item) bool { return true }
		if in.TotalSegments != nil {
			segment, total := *in.Segment, *in.TotalSegments
			if total < 1 || total > 1_000_000 || segment < 0 || segment >= total {
				refuse("The Segment parameter is zero-based and must be less than parameter TotalSegments")
			}
			part = func(it item) bool {
				h := fnv.New32()
				h.Write([]byte(encodeKey(l.table.keys.of(it)[0])))
				return h.Sum32()%uint32(total) == uint32(segment)
			}
		}
		l.only(part)
		p := l.page()
		return &dynamodb.ScanOutput{Items: p.items, Count: p.count, ScannedCount: p.scanned, LastEvaluatedKey: p.last, ConsumedCapacity: p.capacity}
	})
}

// keyCondition compiles a key condition: the partition key equals a value, and
// possibly one condition on the sort key. The first result refuses other keys.
func (e *expressions) keyCondition(text string) (func(schema), condition) {
	p := e.parser("KeyConditionExpression", text)
	for _, t := range p.tokens {
		if strings.EqualFold(t, "OR") || strings.EqualFold(t, "NOT") {
			p.fail("Invalid operator used in KeyConditionExpression: %s", t)
		}
	}
	holds := p.or()
	p.end()
	for _, t := range p.tests {
		if !slices.Contains([]string{"begins_with", "=", "<", "<=", ">", ">=", "BETWEEN"}, t.operator) {
			p.fail("Invalid operator used in KeyConditionExpression: %s", t.operator)
		}
	}
	return func(s schema) {
		partitions := 0
		for _, t := range p.tests {
			at := -1
			for i, o := range t.operands {
				if o.path == nil {
					continue
				}
				found := slices.IndexFunc(s, func(k keyAttribute) bool { return len(o.path) == 1 && k.name == o.path[0].name })
				if at >= 0 || found < 0 || found == 0 && t.operator != "=" || i > 0 && slices.Contains([]string{"BETWEEN", "begins_with"}, t.operator) {
					refuse("Query key condition not supported")
				}
				at = found
			}
			if at < 0 {
				refuse("Query key condition not supported")
			}
			for _, o := range t.operands {
				if o.path == nil && kindOf(o.literal) != s[at].kind {
					refuse("One or more parameter values were invalid: Condition parameter type does not match schema type")
				}
				s.checkSizes(item{s[at].name: o.literal})
			}
			if at == 0 {
				partitions++
			}
		}
		if partitions != 1 || len(p.tests) > 2 {
			refuse("Query condition missed key schema element: %s", s[0].name)
		}
	}, holds
}

// list is a query or a scan.
type list struct {
	filter     condition
	filtered   []string // the attributes in the filter
	names      []string // the projection; nil: all attributes
	start      item
	limit      *int32
	consistent bool
	backward   bool
	selects    types.Select
	capacity   types.ReturnConsumedCapacity

	table     *table
	index     schema   // nil: the table itself
	keys      schema   // of the index or the table
	projected []string // the attributes of the index; nil: all
	items     []item
}

// page is what one call returns.
type page struct {
	items          []item
	count, scanned int32
	last           item
	capacity       *types.ConsumedCapacity
}

// open prepares the list of a table or an index.
func (l *list) open(t *table, indexName *string) {
	l.table, l.keys = t, t.keys
	if indexName != nil {
		i, ok := t.indexes[*indexName]
		if !ok {
			refuse("The table does not have the specified index: %s", *indexName)
		}
		if l.consistent {
			refuse("Consistent reads are not supported on global secondary indexes")
		}
		for _, name := range slices.Concat(l.names, l.filtered) {
			if i.projected != nil && !slices.Contains(i.projected, name) {
				refuse("One or more parameter values were invalid: Global secondary index %s does not project [%s]", *indexName, name)
			}
		}
		l.index, l.keys, l.projected = i.schema, i.schema, i.projected
	}
}

// only selects the items that c holds for, in their order.
func (l *list) only(c condition) {
	for _, it := range l.table.items {
		if l.keys.of(it) != nil && c(it) {
			l.items = append(l.items, project(it, l.projected))
		}
	}
	slices.SortFunc(l.items, l.order)
}

// order compares the keys of two items: of the index, and then of the table.
func (l *list) order(a, b item) int {
	o := 0
	for _, k := range slices.Concat(l.keys, l.table.keys) {
		if o == 0 {
			o, _ = compare(a[k.name], b[k.name])
		}
	}
	if l.backward {
		return -o
	}
	return o
}

// maxPage is how much one call reads, in bytes.
const maxPage = 1 << 20

// page reads the items after the start key until the limit or 1 MB, and filters
// them.
func (l *list) page() (p page) {
	if l.selects != "" && l.selects != types.SelectCount {
		panic(unsupported("Select " + string(l.selects)))
	}
	if l.limit != nil && *l.limit < 1 {
		refuse("Limit must be at least 1")
	}
	rest := l.items
	if l.start != nil {
		if len(l.start) != len(l.table.keyOf(l.start, l.index)) {
			refuse("The provided starting key is invalid")
		}
		l.table.key(l.table.keyOf(l.start, nil), true)
		rest = slices.DeleteFunc(rest, func(it item) bool { return l.order(it, l.start) <= 0 })
	}
	bytes := 0
	for _, it := range rest {
		p.scanned++
		bytes += sizeOf(it)
		if l.filter(it) {
			p.count++
			if l.selects != types.SelectCount {
				p.items = append(p.items, cloneItem(project(it, l.names)))
			}
		}
		if l.limit != nil && p.scanned == *l.limit || bytes >= maxPage {
			p.last = cloneItem(l.table.keyOf(it, l.index))
			break
		}
	}
	if l.capacity != "" && l.capacity != types.ReturnConsumedCapacityNone {
		units := float64(max(1, (bytes+4095)/4096)) / 2
		if l.consistent {
			units *= 2
		}
		p.capacity = &types.ConsumedCapacity{TableName: l.table.description.TableName, CapacityUnits: aws.Float64(cmp.Or(units, 0.5))}
	}
	return p
}
