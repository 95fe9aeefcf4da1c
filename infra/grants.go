// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/internal/tabledef"
)

// GrantHandler allows a grantee, such as a function, an alias or a role, to store
// the records of these operations. It can neither read nor write those of other
// operations. An operation that is missing here is refused by DynamoDB at run
// time, and synthesis fails without any. The operation "*" stands for all of
// them, for a handler with a separate table.
//
// If the grantee is a function that this app creates, or its alias or version,
// GrantHandler sets ONCE_TABLE of the function, and the other variables that
// dynamostore.Open reads. A second table of a function needs a name, see [IdempotencyTable.Named].
// For any other grantee, set ONCE_TABLE and ONCE_CHUNK_TABLE to the names
// of the tables, or to their ARNs if they are in another account, and the others
// as well.
//
// Transactions need no further permission: DynamoDB authorises them by the writes
// in them (developer guide, "Using IAM with DynamoDB transactions"). A table with
// strong consistency across regions has none: dynamostore.Commit and CommitStep return
// an error there, so write what belongs together in a step under Resume. If the
// grantee is in another account, the policies of the table and of its key allow it
// too.
func (t *IdempotencyTable) GrantHandler(grantee awsiam.IGrantable, operations ...*string) awsiam.Grant {
	if len(operations) == 0 {
		refuse(t.Construct, `GrantHandler has no operations: name the operations of the function's code, or "*" for all`)
	}
	for _, o := range operations {
		if wrong := misnamed(or(o, "")); wrong != "" {
			refuse(t.Construct, "one of the operations of GrantHandler "+wrong)
		}
	}
	t.connect(grantee)
	records, chunks := t.keysOf(operations...)
	return t.grant(grantee,
		permission{on: t.arn(), actions: []string{"dynamodb:PutItem", "dynamodb:GetItem"}, keys: append(records, t.keyOf(tabledef.OpenKey))},
	).Combine(t.grantChunks(grantee, chunks))
}

// misnamed returns what is wrong with the name of an operation, or "". No record would have
// it, so the handler could do nothing, and no test in an account without policies shows that.
func misnamed(operation string) string {
	method, path, spaced := strings.Cut(operation, " ")
	name := strings.TrimRight(operation, "*?")
	switch upper := strings.ToUpper(method); {
	case operation == "":
		return "has no name: remove it"
	case isToken(operation):
	case strings.HasSuffix(name, "#"):
		return fmt.Sprintf("is %q, a pattern of record ids: want %q", operation, strings.TrimRight(name, "#"))
	case spaced && strings.HasPrefix(path, "/") && method != upper && slices.Contains(methods, upper):
		return fmt.Sprintf("is %q: want %q, because a method has capital letters", operation, upper+" "+path)
	}
	return ""
}

// methods are the HTTP methods with which the name of an operation can begin.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// GrantReconciler allows a grantee to find and settle due records, and sets the
// variables as GrantHandler does. A reconciler ends the leases of all operations,
// so it may write the records of each. In a table with strong consistency across
// regions it may also delete them, because nothing else deletes expired ones.
// [NewReconciler] calls it for its function.
func (t *IdempotencyTable) GrantReconciler(grantee awsiam.IGrantable) awsiam.Grant {
	return t.grantReconciler(grantee, true)
}

// grantReconciler is GrantReconciler for a reconciler that may have no scans.
func (t *IdempotencyTable) grantReconciler(grantee awsiam.IGrantable, scans bool) awsiam.Grant {
	t.connect(grantee)
	records, chunks := t.keysOf(jsii.String(allOf))
	lists := []permission{{on: t.index(), actions: []string{"dynamodb:Query"}}}
	records = append(records, t.keyOf(tabledef.OpenKey))
	if scans {
		records = append(records, t.keyOf(tabledef.ScanKey))
		lists = append(lists, permission{on: t.arn(), actions: []string{"dynamodb:Scan"}})
	}
	of := append([]permission{{on: t.arn(), actions: []string{"dynamodb:PutItem", "dynamodb:GetItem"}, keys: records}}, lists...)
	if t.strong {
		t.swept = true
		expired, large := t.keysOf(jsii.String(allOf))
		of = append(of, permission{on: t.arn(), actions: []string{"dynamodb:DeleteItem"}, keys: append(expired, large...)})
	}
	return t.grant(grantee, of...).Combine(t.grantChunks(grantee, chunks))
}

// GrantViewer allows a grantee the commands of the command line that only read:
// lookup, show, list, stats and table check, which reports that its claim is denied.
func (t *IdempotencyTable) GrantViewer(grantee awsiam.IGrantable) awsiam.Grant {
	read := func(arn string) permission {
		return permission{on: arn, actions: []string{
			"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive",
		}}
	}
	all := t.grant(grantee, read(t.arn()), permission{on: t.index(), actions: []string{"dynamodb:Query"}})
	if t.Chunks != nil {
		all = all.Combine(t.chunks().grant(grantee, read(t.chunks().arn())))
	}
	return all
}

// GrantOperator allows a grantee all commands of the command line but the
// creation of a table. Some of them write and delete records.
func (t *IdempotencyTable) GrantOperator(grantee awsiam.IGrantable) awsiam.Grant {
	records, chunks := t.keysOf(jsii.String(allOf))
	remove := func(from *IdempotencyTable) awsiam.Grant {
		return from.grant(grantee, permission{on: from.arn(), actions: []string{"dynamodb:BatchWriteItem"}, keys: chunks})
	}
	all := t.GrantViewer(grantee).Combine(t.grant(grantee,
		permission{on: t.arn(), actions: []string{"dynamodb:PutItem", "dynamodb:DeleteItem"}, keys: append(records, t.keyOf(tabledef.ScanKey))},
	)).Combine(remove(t))
	if t.Chunks != nil {
		all = all.Combine(remove(t.chunks()))
	}
	return all
}

func (t *IdempotencyTable) arn() string   { return *t.Table.TableArn() }
func (t *IdempotencyTable) index() string { return t.arn() + "/index/" + tabledef.IndexName }

// chunks is the table of large results, for its grants: this one unless
// KeepLargeResultsIn was called.
func (t *IdempotencyTable) chunks() *IdempotencyTable {
	if t.Chunks == nil {
		return t
	}
	return &IdempotencyTable{Construct: t.Construct, Table: t.Chunks, layout: t.layout}
}

// grantChunks allows a grantee to store and read large results. Those that were
// stored before KeepLargeResultsIn was called are in the table of the records.
func (t *IdempotencyTable) grantChunks(grantee awsiam.IGrantable, keys []string) awsiam.Grant {
	all := t.chunks().grant(grantee,
		permission{on: t.chunks().arn(), actions: []string{"dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"}, keys: keys})
	if t.Chunks != nil {
		all = all.Combine(t.grant(grantee, permission{on: t.arn(), actions: []string{"dynamodb:BatchGetItem"}, keys: keys}))
	}
	return all
}

// connect sets the variables that dynamostore.Open reads.
func (t *IdempotencyTable) connect(grantee awsiam.IGrantable) {
	t.granted = true
	t.mustBeIn(grantee)
	fn := functionBehind(grantee)
	if fn == nil {
		return
	}
	t.functions = append(t.functions, fn)
	chunks := variable{name: t.variable("ONCE_CHUNK_TABLE")}
	if t.Chunks != nil {
		chunks.value = t.chunks().address(fn)
	}
	setVariables(t.Construct, fn, append(t.settings(), variable{t.variable("ONCE_TABLE"), t.address(fn)}, chunks)...)
}

// variable returns the name of a variable of this table, as dynamostore.Open reads it.
func (t *IdempotencyTable) variable(name string) string {
	if t == nil {
		return name
	}
	return tabledef.Variable(name, t.name)
}

// settings returns the variables that describe the table.
func (t *IdempotencyTable) settings() []variable {
	consistency := ""
	if t.strong {
		consistency = "strong"
	}
	return []variable{
		unless(tabledef.PartitionKey, t.variable("ONCE_PARTITION_KEY"), *t.layout.PartitionKey),
		unless("", t.variable("ONCE_SORT_KEY"), *t.layout.SortKey),
		unless("", t.variable("ONCE_PREFIX"), *t.layout.Prefix),
		unless(tabledef.TTLAttribute, t.variable("ONCE_TTL_ATTRIBUTE"), *t.layout.TimeToLiveAttribute),
		unless("", t.variable("ONCE_CONSISTENCY"), consistency),
	}
}

// unless returns a variable that is not set if its value is the store's default.
func unless(otherwise, name, value string) variable {
	if value == otherwise {
		return variable{name: name}
	}
	return variable{name, &value}
}

// mustBeIn refuses a function of another region than the table's. Its calls would go
// to its own region, whether they have the table's name or its ARN.
func (t *IdempotencyTable) mustBeIn(grantee awsiam.IGrantable) {
	fn, ok := grantee.(awslambda.IFunction)
	if !ok {
		return
	}
	for _, table := range []awsdynamodb.ITable{t.Table, t.Chunks} {
		if table == nil {
			continue
		}
		theirs, ours := fn.Env().Region, table.Env().Region
		if awscdk.Token_CompareStrings(theirs, ours) == awscdk.TokenComparison_DIFFERENT() {
			refuse(t.Construct, fmt.Sprintf("the function %s is in %s and the table %s in %s, and DynamoDB finds a table only in its own region: deploy both to one region, or use the table's replica there (Replica of TableV2, with IdempotencyTableFrom)",
				*fn.Node().Path(), *theirs, *table.Node().Path(), *ours))
		}
	}
}

// address returns the name of the table, or its ARN if it is in another account
// than the function.
func (t *IdempotencyTable) address(fn awslambda.Function) *string {
	if sameAccount(t.Table.Env().Account, fn.Env().Account) {
		return t.Table.TableName()
	}
	return t.Table.TableArn()
}

// permission is a statement of a policy.
type permission struct {
	on      string // an ARN
	actions []string
	keys    []string // patterns of the partition keys; nil: any
}

// conditions limits the partition keys of a request. A request without keys, such
// as a scan, would meet ForAllValues alone (IAM user guide, "Set operators for
// multivalued context keys").
func (p permission) conditions() *map[string]*map[string]any {
	if p.keys == nil {
		return nil
	}
	return &map[string]*map[string]any{
		"ForAllValues:StringLike": {"dynamodb:LeadingKeys": p.keys},
		"Null":                    {"dynamodb:LeadingKeys": "false"},
	}
}

const (
	// allOf stands for all operations.
	allOf = "*"
	// hashPattern matches the hash in a record id, the only part behind the last "#".
	hashPattern = "#???????????????????????????????????????????"
)

// keysOf returns patterns for the keys of the operations' records, which begin with
// the prefix of the layout, and for those of the chunks of large results: a record
// id, "#", a write id, "#" and a number.
// The records have no other key, so a pattern with a fixed length for the hash
// does not match those of an operation whose name begins in the same way.
func (t *IdempotencyTable) keysOf(operations ...*string) (records, chunks []string) {
	prefix := literal.Replace(*t.layout.Prefix)
	for _, o := range operations {
		pattern := or(o, "")
		if pattern != allOf && !isToken(pattern) {
			pattern = literal.Replace(pattern)
		}
		records = append(records, prefix+pattern+hashPattern)
		chunks = append(chunks, prefix+pattern+hashPattern+"#*")
	}
	return records, chunks
}

// keyOf returns a pattern for a key that no record has: where the store notes how far its
// scan is, and what a function reads while it starts.
func (t *IdempotencyTable) keyOf(key string) string {
	return literal.Replace(*t.layout.Prefix) + key
}

// literal escapes the characters that have a meaning in policies (IAM user guide,
// "IAM policy elements: Variables and tags").
var literal = strings.NewReplacer("$", "${$}", "*", "${*}", "?", "${?}")

// grant adds permissions to the grantee's policies, and the use of the table's
// key. The Grant method of the CDK's table would add every index. Its
// AddToPrincipalOrResource would leave the conditions out of a resource policy.
func (t *IdempotencyTable) grant(to awsiam.IGrantable, permissions ...permission) awsiam.Grant {
	if fn, ok := to.(awslambda.IFunction); ok && lacksRole(t.Construct, fn) {
		return awsiam.Grant_Drop(to, jsii.String("use of the table"))
	}
	var all awsiam.Grant
	add := func(one awsiam.Grant) {
		if all != nil {
			one = all.Combine(one)
		}
		all = one
	}
	foreign := t.isForeign(to)
	for _, p := range permissions {
		add(awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
			Grantee: to, Actions: jsii.Strings(p.actions...), ResourceArns: jsii.Strings(p.on), Conditions: p.conditions(),
		}))
		if foreign {
			add(t.grantByTable(to, p))
		}
	}
	if t.Table.EncryptionKey() != nil {
		add(t.grantKey(to, foreign))
	}
	return all
}

// isForeign reports whether a grantee is not known to be in the table's account,
// so that the table's own policy has to allow it. It warns if that policy cannot
// be changed.
func (t *IdempotencyTable) isForeign(to awsiam.IGrantable) bool {
	account, own := to.GrantPrincipal().PrincipalAccount(), t.Table.Env().Account
	if account != nil && sameAccount(account, own) {
		return false
	}
	_, changeable := t.Table.(awsiam.IResourceWithPolicyV2)
	changeable = changeable && *awscdk.Resource_IsOwnedResource(t.Table)
	if !changeable && account != nil && awscdk.Token_CompareStrings(account, own) == awscdk.TokenComparison_DIFFERENT() {
		warn(t.Construct, "once:resource-policy", "the policy of the imported table "+*t.Table.Node().Path()+
			" cannot be changed here: make sure that it, and the policy of its key, allow the grantee of another account")
	}
	return changeable
}

// grantByTable adds a permission to the policy of the table, which calls the table
// and its index "*".
func (t *IdempotencyTable) grantByTable(to awsiam.IGrantable, p permission) awsiam.Grant {
	statement := &awsiam.PolicyStatementProps{
		Actions: jsii.Strings(p.actions...), Resources: jsii.Strings("*"), Principals: &[]awsiam.IPrincipal{to.GrantPrincipal()},
	}
	if conditions := p.conditions(); conditions != nil {
		statement.Conditions = &map[string]any{}
		for operator, values := range *conditions {
			(*statement.Conditions)[operator] = *values
		}
	}
	return awsiam.Grant_AddStatementToResourcePolicy(&awsiam.GrantPolicyWithResourceOptions{
		Grantee: to, Actions: statement.Actions, ResourceArns: jsii.Strings(p.on),
		Resource: t.Table.(awsiam.IResourceWithPolicyV2), Statement: awsiam.NewPolicyStatement(statement),
	})
}

// grantKey allows the use of the table's key, through DynamoDB only.
func (t *IdempotencyTable) grantKey(to awsiam.IGrantable, foreign bool) awsiam.Grant {
	key, through := t.Table.EncryptionKey(), map[string]any{"kms:ViaService": "dynamodb." + *t.Table.Env().Region + ".amazonaws.com"}
	actions := jsii.Strings("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
		"kms:ReEncryptFrom", "kms:ReEncryptTo")
	if foreign {
		key.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: actions, Resources: jsii.Strings("*"), Principals: &[]awsiam.IPrincipal{to.GrantPrincipal()},
			Conditions: &map[string]any{"StringEquals": through},
		}), jsii.Bool(true))
	}
	return awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee: to, Actions: actions, ResourceArns: &[]*string{key.KeyArn()},
		Conditions: &map[string]*map[string]any{"StringEquals": &through},
	})
}
