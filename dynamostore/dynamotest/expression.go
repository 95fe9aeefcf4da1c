// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// expressions are the expressions of one request, which share their placeholders.
type expressions struct {
	names   map[string]string
	values  item
	used    map[string]bool // placeholders
	paths   []string        // the attributes in the conditions and filters so far
	entered []string        // the attributes into which a path of any expression leads
}

func newExpressions(names map[string]string, values item) *expressions {
	if names != nil && len(names) == 0 {
		refuse("ExpressionAttributeNames must not be empty")
	}
	if values != nil && len(values) == 0 {
		refuse("ExpressionAttributeValues must not be empty")
	}
	return &expressions{names: names, values: cloneItem(values), used: map[string]bool{}}
}

// done refuses placeholders that no expression uses. Call it after the last
// expression.
func (e *expressions) done() {
	for _, name := range slices.Sorted(maps.Keys(e.names)) {
		if !e.used[name] {
			refuse("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		if !e.used[name] {
			refuse("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", name)
		}
	}
}

// condition is a compiled condition, filter or key condition. It is true of an item,
// or of nil, which is a missing item.
type condition func(item) bool

// condition compiles a condition or filter. No text is a condition that is always
// true.
func (e *expressions) condition(kind string, text *string) condition {
	if text == nil {
		return func(item) bool { return true }
	}
	p := e.parser(kind, *text)
	holds := p.or()
	p.end()
	return holds
}

// projection compiles a projection of top-level attributes. No text selects all of
// them.
func (e *expressions) projection(text *string) (names []string) {
	if text == nil {
		return nil
	}
	p := e.parser("ProjectionExpression", *text)
	for {
		path := p.path()
		if len(path) > 1 {
			panic(unsupported("a ProjectionExpression with a nested path"))
		}
		if slices.Contains(names, path[0].name) {
			p.fail("Two document paths overlap with each other; must remove or rewrite one of these paths")
		}
		names = append(names, path[0].name)
		if !p.accept(",") {
			p.end()
			return names
		}
	}
}

// project returns the attributes of an item with these names, or all if names is
// nil.
func project(it item, names []string) item {
	it = maps.Clone(it)
	maps.DeleteFunc(it, func(name string, _ types.AttributeValue) bool {
		return names != nil && !slices.Contains(names, name)
	})
	return it
}

// parser compiles one expression.
type parser struct {
	*expressions
	kind   string   // the parameter of the request, for error texts
	tokens []string // not parsed yet
	tests  []test   // so far
}

// test is a function or an operator of a condition, with its operands.
type test struct {
	operator string
	operands []operand
}

var (
	token      = regexp.MustCompile(`^(?:[#:]\w+|[A-Za-z]\w*|\d+|<=|>=|<>|[=<>(),.\[\]+-])`)
	startsName = regexp.MustCompile(`^[A-Za-z]`)
	// tokenized has the tokens of each expression that was parsed. A program has few.
	tokenized sync.Map
)

func (e *expressions) parser(kind, text string) *parser {
	p := &parser{expressions: e, kind: kind}
	rest := strings.TrimSpace(text)
	if rest == "" {
		p.fail("The expression can not be empty;")
	}
	if known, ok := tokenized.Load(rest); ok {
		p.tokens = known.([]string)
		return p
	}
	whole := rest
	for rest != "" {
		t := token.FindString(rest)
		if t == "" {
			p.fail("Syntax error; token: %q, near: %q", rest[:1], rest)
		}
		p.tokens = append(p.tokens, t)
		rest = strings.TrimSpace(rest[len(t):])
	}
	tokenized.Store(whole, p.tokens)
	return p
}

func (p *parser) fail(format string, args ...any) {
	refuse("Invalid %s: %s", p.kind, fmt.Sprintf(format, args...))
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return "<EOF>"
	}
	return p.tokens[0]
}

func (p *parser) next() string {
	t := p.peek()
	if len(p.tokens) == 0 {
		p.unexpected()
	}
	p.tokens = p.tokens[1:]
	return t
}

// accept consumes the next token if it is t. Keywords have any case.
func (p *parser) accept(t string) bool {
	if !strings.EqualFold(p.peek(), t) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(t string) {
	if !p.accept(t) {
		p.unexpected()
	}
}

func (p *parser) end() {
	if len(p.tokens) > 0 {
		p.unexpected()
	}
}

func (p *parser) unexpected() {
	p.fail("Syntax error; token: %q, near: %q", p.peek(), strings.Join(p.tokens[:min(3, len(p.tokens))], " "))
}

// or parses a condition. NOT binds tighter than AND, and AND tighter than OR.
func (p *parser) or() condition {
	left := p.and()
	for p.accept("OR") {
		l, r := left, p.and()
		left = func(it item) bool { return l(it) || r(it) }
	}
	return left
}

func (p *parser) and() condition {
	left := p.not()
	for p.accept("AND") {
		l, r := left, p.not()
		left = func(it item) bool { return l(it) && r(it) }
	}
	return left
}

func (p *parser) not() condition {
	if p.accept("NOT") {
		c := p.not()
		return func(it item) bool { return !c(it) }
	}
	if p.peek() == "(" && !p.aroundOperand() {
		p.next()
		if p.redundant() {
			p.fail("The expression has redundant parentheses;")
		}
		c := p.or()
		p.expect(")")
		return c
	}
	if len(p.tokens) > 1 && p.tokens[1] == "(" && !strings.EqualFold(p.peek(), "size") {
		return p.function()
	}
	return p.comparison()
}

// aroundOperand reports whether the next tokens are an operand in parentheses.
func (p *parser) aroundOperand() bool {
	n := p.parenthesised()
	return n < len(p.tokens) && slices.Contains([]string{"=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN"}, strings.ToUpper(p.tokens[n]))
}

// redundant reports whether the tokens after an opening parenthesis are another
// pair of parentheses and nothing else.
func (p *parser) redundant() bool {
	n := p.parenthesised()
	return n < len(p.tokens) && p.tokens[n] == ")"
}

// parenthesised returns how many of the next tokens are a pair of parentheses and what is in
// it, or 0.
func (p *parser) parenthesised() int {
	depth := 0
	for i, t := range p.tokens {
		switch t {
		case "(":
			depth++
		case ")":
			depth--
		}
		switch {
		case i == 0 && depth != 1:
			return 0
		case depth == 0:
			return i + 1
		}
	}
	return 0
}

// function parses a function that is a condition.
func (p *parser) function() condition {
	name := p.next()
	p.expect("(")
	var args []operand
	for {
		args = append(args, p.operand())
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	want, known := map[string]int{"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2}[name]
	if !known {
		p.fail("Invalid function name; function: %s", name)
	}
	if len(args) != want {
		p.fail("Incorrect number of operands for operator or function; operator or function: %s, number of operands: %d", name, len(args))
	}
	p.tests = append(p.tests, test{name, args})
	first := args[0]
	p.distinct(name, first, args[1:]...)
	switch name {
	case "attribute_exists", "attribute_not_exists":
		if first.path == nil {
			p.fail("Operator or function requires a document path; operator or function: %s", name)
		}
		return func(it item) bool { return (first.of(it) != nil) == (name == "attribute_exists") }
	case "attribute_type":
		kind, ok := args[1].literal.(*types.AttributeValueMemberS)
		if !ok || !slices.Contains([]string{"S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M"}, kind.Value) {
			p.fail("Invalid attribute type name found")
		}
		return func(it item) bool { return kindOf(first.of(it)) == kind.Value }
	case "begins_with":
		for _, a := range args {
			p.wantKind(name, a, "S", "B")
		}
		return func(it item) bool { return beginsWith(first.of(it), args[1].of(it)) }
	}
	return func(it item) bool { return contains(first.of(it), args[1].of(it)) }
}

func beginsWith(whole, start types.AttributeValue) bool {
	switch w := whole.(type) {
	case *types.AttributeValueMemberS:
		s, ok := start.(*types.AttributeValueMemberS)
		return ok && strings.HasPrefix(w.Value, s.Value)
	case *types.AttributeValueMemberB:
		s, ok := start.(*types.AttributeValueMemberB)
		return ok && strings.HasPrefix(string(w.Value), string(s.Value))
	}
	return false
}

func contains(whole, part types.AttributeValue) bool {
	switch w := whole.(type) {
	case *types.AttributeValueMemberS:
		s, ok := part.(*types.AttributeValueMemberS)
		return ok && strings.Contains(w.Value, s.Value)
	case *types.AttributeValueMemberB:
		s, ok := part.(*types.AttributeValueMemberB)
		return ok && strings.Contains(string(w.Value), string(s.Value))
	case *types.AttributeValueMemberL:
		return slices.ContainsFunc(w.Value, func(v types.AttributeValue) bool { return equal(v, part) })
	}
	kind, members := membersOf(whole)
	if kindOf(part)+"S" != kind {
		return false
	}
	_, one := membersOf(setOf(kind, []string{scalar(part)}))
	return slices.Contains(members, one[0])
}

// scalar returns a string, number or binary value as text.
func scalar(value types.AttributeValue) string {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return string(v.Value)
	}
	return ""
}

// wantKind refuses an operand that always has another type.
func (p *parser) wantKind(operator string, o operand, kinds ...string) {
	if o.kind != "" && !slices.Contains(kinds, o.kind) {
		p.fail("Incorrect operand type for operator or function; operator or function: %s, operand type: %s", operator, o.kind)
	}
}

func (p *parser) comparison() condition {
	left := p.operand()
	operator := strings.ToUpper(p.next())
	switch operator {
	case "IN":
		return p.in(left)
	case "BETWEEN":
		low := p.operand()
		p.expect("AND")
		high := p.operand()
		p.tests = append(p.tests, test{operator, []operand{left, low, high}})
		for _, o := range []operand{left, low, high} {
			p.wantKind(operator, o, "S", "N", "B")
		}
		p.distinct(operator, left, low, high)
		if low.literal != nil && high.literal != nil {
			if order, ok := compare(low.literal, high.literal); !ok || order > 0 {
				p.fail("The BETWEEN operator requires upper bound to be greater than or equal to lower bound")
			}
		}
		return func(it item) bool {
			v := left.of(it)
			above, ok1 := compare(v, low.of(it))
			below, ok2 := compare(v, high.of(it))
			return ok1 && ok2 && above >= 0 && below <= 0
		}
	}
	right := p.operandAfter(operator)
	p.tests = append(p.tests, test{operator, []operand{left, right}})
	p.distinct(operator, left, right)
	switch operator {
	case "=":
		return func(it item) bool { return same(left.of(it), right.of(it)) }
	case "<>":
		return func(it item) bool { return !same(left.of(it), right.of(it)) }
	}
	p.wantKind(operator, left, "S", "N", "B")
	p.wantKind(operator, right, "S", "N", "B")
	return func(it item) bool {
		order, ok := compare(left.of(it), right.of(it))
		switch {
		case !ok:
			return false
		case operator == "<":
			return order < 0
		case operator == "<=":
			return order <= 0
		case operator == ">":
			return order > 0
		}
		return order >= 0
	}
}

// operandAfter parses the right side of a comparison.
func (p *parser) operandAfter(operator string) operand {
	if !slices.Contains([]string{"=", "<>", "<", "<=", ">", ">="}, operator) {
		p.fail("Syntax error; token: %q, near: %q", operator, p.peek())
	}
	return p.operand()
}

// same is equal for two values that exist.
func same(a, b types.AttributeValue) bool { return a != nil && b != nil && equal(a, b) }

// distinct refuses a path that is repeated. A value or a function may be.
func (p *parser) distinct(operator string, first operand, others ...operand) {
	for _, o := range others {
		if first.path != nil && slices.Equal(first.path, o.path) {
			p.fail("The first operand must be distinct from the remaining operands for this operator or function; operator: %s, first operand: %s", operator, first.path)
		}
	}
}

// maxIn is how many operands IN accepts.
const maxIn = 100

func (p *parser) in(left operand) condition {
	p.expect("(")
	var list []operand
	for {
		list = append(list, p.operand())
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	p.tests = append(p.tests, test{operator: "IN"})
	if len(list) > maxIn {
		p.fail("Invalid number of operands for IN: %d", len(list))
	}
	p.distinct("IN", left, list...)
	return func(it item) bool {
		v := left.of(it)
		return slices.ContainsFunc(list, func(o operand) bool { return same(v, o.of(it)) })
	}
}

// operand is a path, a value of the request, or the size of a path.
type operand struct {
	of      func(item) types.AttributeValue
	kind    string // of each of its values; empty for a path
	path    path
	literal types.AttributeValue
}

func (p *parser) operand() operand {
	t := p.peek()
	if p.accept("(") {
		if p.redundant() {
			p.fail("The expression has redundant parentheses;")
		}
		o := p.operand()
		p.expect(")")
		return o
	}
	if strings.HasPrefix(t, ":") {
		v := p.value(p.next())
		return operand{kind: kindOf(v), literal: v, of: func(item) types.AttributeValue { return v }}
	}
	if t == "size" && len(p.tokens) > 1 && p.tokens[1] == "(" {
		p.next()
		p.expect("(")
		o := p.operand()
		p.expect(")")
		p.wantKind("size", o, "S", "B", "SS", "NS", "BS", "L", "M")
		return operand{kind: "N", of: func(it item) types.AttributeValue { return length(o.of(it)) }}
	}
	path := p.path()
	p.paths = append(p.paths, path[0].name)
	return operand{path: path, of: path.of}
}

// length returns the result of the function size.
func length(value types.AttributeValue) types.AttributeValue {
	n := 0
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		n = len(utf16.Encode([]rune(v.Value)))
	case *types.AttributeValueMemberB:
		n = len(v.Value)
	case *types.AttributeValueMemberL:
		n = len(v.Value)
	case *types.AttributeValueMemberM:
		n = len(v.Value)
	default:
		kind, members := membersOf(value)
		if kind == "" {
			return nil
		}
		n = len(members)
	}
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

func (p *parser) value(name string) types.AttributeValue {
	v, ok := p.values[name]
	if !ok {
		p.fail("An expression attribute value used in expression is not defined; attribute value: %s", name)
	}
	p.used[name] = true
	return v
}

// path leads to an attribute, or into one.
type path []element

// element is a name, or an index of a list.
type element struct {
	name  string
	index int // -1 for a name
}

func (p *parser) path() (path path) {
	path = append(path, element{p.name(), -1})
	for {
		switch {
		case p.accept("."):
			path = append(path, element{p.name(), -1})
		case p.accept("["):
			i, err := strconv.Atoi(p.next())
			if err != nil {
				p.unexpected()
			}
			p.expect("]")
			path = append(path, element{"", i})
		default:
			if len(path) > 1 {
				p.entered = append(p.entered, path[0].name)
			}
			return path
		}
	}
}

func (p *parser) name() string {
	t := p.next()
	switch {
	case strings.HasPrefix(t, "#"):
		name, ok := p.names[t]
		if !ok {
			p.fail("An expression attribute name used in the document path is not defined; attribute name: %s", t)
		}
		p.used[t] = true
		return name
	case !startsName.MatchString(t):
		p.fail("Syntax error; token: %q", t)
	case reserved(t):
		p.fail("Attribute name is a reserved keyword; reserved keyword: %s", t)
	}
	return t
}

// of returns the value at the path, or nil.
func (path path) of(it item) types.AttributeValue {
	value := it[path[0].name]
	for _, e := range path[1:] {
		switch v := value.(type) {
		case *types.AttributeValueMemberM:
			value = v.Value[e.name] // none has the name of an index, which is empty
		case *types.AttributeValueMemberL:
			value = nil
			if e.index >= 0 && e.index < len(v.Value) {
				value = v.Value[e.index]
			}
		default:
			return nil
		}
	}
	return value
}

func (path path) String() string {
	var s []string
	for _, e := range path {
		if e.index >= 0 {
			s = append(s, fmt.Sprintf("[%d]", e.index))
		} else {
			s = append(s, e.name)
		}
	}
	return "[" + strings.Join(s, ", ") + "]"
}

// reserved reports whether an attribute name cannot be written in an expression
// without a placeholder.
func reserved(name string) bool {
	_, found := slices.BinarySearch(reservedWords, strings.ToUpper(name))
	return found
}

// reservedWords are the words of the developer guide, "Reserved words in DynamoDB",
// in their order.
var reservedWords = strings.Fields(`
ABORT ABSOLUTE ACTION ADD AFTER AGENT AGGREGATE ALL ALLOCATE ALTER ANALYZE AND ANY ARCHIVE ARE ARRAY AS ASC ASCII
ASENSITIVE ASSERTION ASYMMETRIC AT ATOMIC ATTACH ATTRIBUTE AUTH AUTHORIZATION AUTHORIZE AUTO AVG BACK BACKUP BASE BATCH
BEFORE BEGIN BETWEEN BIGINT BINARY BIT BLOB BLOCK BOOLEAN BOTH BREADTH BUCKET BULK BY BYTE CALL CALLED CALLING CAPACITY
CASCADE CASCADED CASE CAST CATALOG CHAR CHARACTER CHECK CLASS CLOB CLOSE CLUSTER CLUSTERED CLUSTERING CLUSTERS COALESCE
COLLATE COLLATION COLLECTION COLUMN COLUMNS COMBINE COMMENT COMMIT COMPACT COMPILE COMPRESS CONDITION CONFLICT CONNECT
CONNECTION CONSISTENCY CONSISTENT CONSTRAINT CONSTRAINTS CONSTRUCTOR CONSUMED CONTINUE CONVERT COPY CORRESPONDING COUNT
COUNTER CREATE CROSS CUBE CURRENT CURSOR CYCLE DATA DATABASE DATE DATETIME DAY DEALLOCATE DEC DECIMAL DECLARE DEFAULT
DEFERRABLE DEFERRED DEFINE DEFINED DEFINITION DELETE DELIMITED DEPTH DEREF DESC DESCRIBE DESCRIPTOR DETACH DETERMINISTIC
DIAGNOSTICS DIRECTORIES DISABLE DISCONNECT DISTINCT DISTRIBUTE DO DOMAIN DOUBLE DROP DUMP DURATION DYNAMIC EACH ELEMENT
ELSE ELSEIF EMPTY ENABLE END EQUAL EQUALS ERROR ESCAPE ESCAPED EVAL EVALUATE EXCEEDED EXCEPT EXCEPTION EXCEPTIONS
EXCLUSIVE EXEC EXECUTE EXISTS EXIT EXPLAIN EXPLODE EXPORT EXPRESSION EXTENDED EXTERNAL EXTRACT FAIL FALSE FAMILY FETCH
FIELDS FILE FILTER FILTERING FINAL FINISH FIRST FIXED FLATTERN FLOAT FOR FORCE FOREIGN FORMAT FORWARD FOUND FREE FROM
FULL FUNCTION FUNCTIONS GENERAL GENERATE GET GLOB GLOBAL GO GOTO GRANT GREATER GROUP GROUPING HANDLER HASH HAVE HAVING
HEAP HIDDEN HOLD HOUR IDENTIFIED IDENTITY IF IGNORE IMMEDIATE IMPORT IN INCLUDING INCLUSIVE INCREMENT INCREMENTAL INDEX
INDEXED INDEXES INDICATOR INFINITE INITIALLY INLINE INNER INNTER INOUT INPUT INSENSITIVE INSERT INSTEAD INT INTEGER
INTERSECT INTERVAL INTO INVALIDATE IS ISOLATION ITEM ITEMS ITERATE JOIN KEY KEYS LAG LANGUAGE LARGE LAST LATERAL LEAD
LEADING LEAVE LEFT LENGTH LESS LEVEL LIKE LIMIT LIMITED LINES LIST LOAD LOCAL LOCALTIME LOCALTIMESTAMP LOCATION LOCATOR
LOCK LOCKS LOG LOGED LONG LOOP LOWER MAP MATCH MATERIALIZED MAX MAXLEN MEMBER MERGE METHOD METRICS MIN MINUS MINUTE
MISSING MOD MODE MODIFIES MODIFY MODULE MONTH MULTI MULTISET NAME NAMES NATIONAL NATURAL NCHAR NCLOB NEW NEXT NO NONE
NOT NULL NULLIF NUMBER NUMERIC OBJECT OF OFFLINE OFFSET OLD ON ONLINE ONLY OPAQUE OPEN OPERATOR OPTION OR ORDER
ORDINALITY OTHER OTHERS OUT OUTER OUTPUT OVER OVERLAPS OVERRIDE OWNER PAD PARALLEL PARAMETER PARAMETERS PARTIAL
PARTITION PARTITIONED PARTITIONS PATH PERCENT PERCENTILE PERMISSION PERMISSIONS PIPE PIPELINED PLAN POOL POSITION
PRECISION PREPARE PRESERVE PRIMARY PRIOR PRIVATE PRIVILEGES PROCEDURE PROCESSED PROJECT PROJECTION PROPERTY PROVISIONING
PUBLIC PUT QUERY QUIT QUORUM RAISE RANDOM RANGE RANK RAW READ READS REAL REBUILD RECORD RECURSIVE REDUCE REF REFERENCE
REFERENCES REFERENCING REGEXP REGION REINDEX RELATIVE RELEASE REMAINDER RENAME REPEAT REPLACE REQUEST RESET RESIGNAL
RESOURCE RESPONSE RESTORE RESTRICT RESULT RETURN RETURNING RETURNS REVERSE REVOKE RIGHT ROLE ROLES ROLLBACK ROLLUP
ROUTINE ROW ROWS RULE RULES SAMPLE SATISFIES SAVE SAVEPOINT SCAN SCHEMA SCOPE SCROLL SEARCH SECOND SECTION SEGMENT
SEGMENTS SELECT SELF SEMI SENSITIVE SEPARATE SEQUENCE SERIALIZABLE SESSION SET SETS SHARD SHARE SHARED SHORT SHOW SIGNAL
SIMILAR SIZE SKEWED SMALLINT SNAPSHOT SOME SOURCE SPACE SPACES SPARSE SPECIFIC SPECIFICTYPE SPLIT SQL SQLCODE SQLERROR
SQLEXCEPTION SQLSTATE SQLWARNING START STATE STATIC STATUS STORAGE STORE STORED STREAM STRING STRUCT STYLE SUB
SUBMULTISET SUBPARTITION SUBSTRING SUBTYPE SUM SUPER SYMMETRIC SYNONYM SYSTEM TABLE TABLESAMPLE TEMP TEMPORARY
TERMINATED TEXT THAN THEN THROUGHPUT TIME TIMESTAMP TIMEZONE TINYINT TO TOKEN TOTAL TOUCH TRAILING TRANSACTION TRANSFORM
TRANSLATE TRANSLATION TREAT TRIGGER TRIM TRUE TRUNCATE TTL TUPLE TYPE UNDER UNDO UNION UNIQUE UNIT UNKNOWN UNLOGGED
UNNEST UNPROCESSED UNSIGNED UNTIL UPDATE UPPER URL USAGE USE USER USERS USING UUID VACUUM VALUE VALUED VALUES VARCHAR
VARIABLE VARIANCE VARINT VARYING VIEW VIEWS VIRTUAL VOID WAIT WHEN WHENEVER WHERE WHILE WINDOW WITH WITHIN WITHOUT WORK
WRAPPED WRITE YEAR ZONE`)
