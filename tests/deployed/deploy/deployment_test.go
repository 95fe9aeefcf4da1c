// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/tabledef"
)

// deployment is the deployed stack.
type deployment struct {
	cdk      *cdk
	cfg      aws.Config
	lambda   *lambda.Client
	sqs      *sqs.Client
	dynamodb *dynamodb.Client

	records, shop      string // tables
	orders, deadOrders string // queues' URLs
	rest, functionURL  *url.URL
	tenants            []string // API keys

	chargesURL, chargesREST, reconciler, ordersFunction string // functions' names
}

func deploy(ctx context.Context, c *cdk, providerURL string) (*deployment, error) {
	outputs, err := c.deploy(ctx, providerURL)
	if err != nil {
		return nil, err
	}
	cfg := engine.Config(c.endpoint)
	d := &deployment{
		cdk: c, cfg: cfg, lambda: lambda.NewFromConfig(cfg), sqs: sqs.NewFromConfig(cfg), dynamodb: dynamostore.NewClient(cfg),
		records: outputs["RecordsTable"], shop: outputs["ShopTable"], orders: outputs["OrderQueueURL"], deadOrders: outputs["DeadOrdersURL"],
	}
	if d.rest, err = url.Parse(outputs["APIURL"]); err != nil {
		return nil, err
	}
	if d.functionURL, err = url.Parse(outputs["FunctionURL"]); err != nil {
		return nil, err
	}
	for _, name := range []string{"TenantAKey", "TenantBKey"} {
		key, err := d.apiKey(ctx, outputs[name])
		if err != nil {
			return nil, err
		}
		d.tenants = append(d.tenants, key)
	}
	if err := d.findFunctions(ctx); err != nil {
		return nil, err
	}
	return d, d.giveTime(ctx)
}

// giveTime lets charges take as long as API Gateway waits: a busy machine may need more
// than the ten seconds of the stack.
func (d *deployment) giveTime(ctx context.Context) error {
	for _, function := range []string{d.chargesURL, d.chargesREST} {
		if _, err := d.lambda.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
			FunctionName: &function, Timeout: aws.Int32(29),
		}); err != nil {
			return err
		}
		if err := d.updated(ctx, function); err != nil {
			return err
		}
	}
	return nil
}

// apiKey returns the value that a client of the REST API sends.
func (d *deployment) apiKey(ctx context.Context, id string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.cdk.endpoint+"/apikeys/"+id+"?includeValue=true", nil)
	if err != nil {
		return "", err
	}
	_, text, err := ask("apigateway", req)
	if err != nil {
		return "", err
	}
	var key struct{ Value string }
	if json.Unmarshal(text, &key) != nil || key.Value == "" {
		return "", fmt.Errorf("the API key %q has no value: %s", id, text)
	}
	return key.Value, nil
}

// ask sends a request to a service of LocalStack, which selects the service by
// the signature but does not verify it.
func ask(service string, req *http.Request) (status int, text []byte, err error) {
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/"+region+"/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

func (d *deployment) findFunctions(ctx context.Context) error {
	for id, name := range map[string]*string{"ChargesURL": &d.chargesURL, "ChargesREST": &d.chargesREST, "ReconcilerFunction": &d.reconciler, "Orders": &d.ordersFunction} {
		found, err := d.functions(ctx, stackName+"-"+id)
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("the stack has the functions %q, want one %s", found, id)
		}
		*name = found[0]
	}
	return nil
}

// functions returns the names of the functions that begin with prefix.
func (d *deployment) functions(ctx context.Context, prefix string) (names []string, err error) {
	pages := lambda.NewListFunctionsPaginator(d.lambda, &lambda.ListFunctionsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, f := range page.Functions {
			if strings.HasPrefix(*f.FunctionName, prefix) {
				names = append(names, *f.FunctionName)
			}
		}
	}
	return names, nil
}

// configuration returns the configuration of a function.
func (d *deployment) configuration(t *testing.T, function string) *lambda.GetFunctionConfigurationOutput {
	t.Helper()
	c, err := d.lambda.GetFunctionConfiguration(t.Context(), &lambda.GetFunctionConfigurationInput{FunctionName: &function})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// create creates a function beside the stack's, with the role and the environment
// of the one behind the function URL, and additional variables.
func (d *deployment) create(t *testing.T, name string, archive []byte, timeout int32, env map[string]string) {
	t.Helper()
	model := d.configuration(t, d.chargesURL)
	for variable, value := range model.Environment.Variables {
		if _, ours := env[variable]; !ours {
			env[variable] = value
		}
	}
	_, err := d.lambda.CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &name, Role: model.Role, Runtime: model.Runtime, Architectures: model.Architectures, Handler: model.Handler,
		Code: &lambdatypes.FunctionCode{ZipFile: archive}, Timeout: &timeout, Environment: &lambdatypes.Environment{Variables: env},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.lambda.DeleteFunction(context.Background(), &lambda.DeleteFunctionInput{FunctionName: &name}); err != nil {
			t.Error(err)
		}
	})
	// LocalStack waits for it, but only 10 s.
	active := lambda.NewFunctionActiveV2Waiter(d.lambda, func(o *lambda.FunctionActiveV2WaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	})
	if err := active.Wait(t.Context(), &lambda.GetFunctionInput{FunctionName: &name}, kit.Patience); err != nil {
		t.Fatal(err)
	}
}

// redeploy gives a charge function another address of the provider and its code
// again, one after the other as the CDK does: Lambda refuses a change while
// another one is in progress.
func (d *deployment) redeploy(t *testing.T, function, providerURL string) {
	t.Helper()
	env := d.configuration(t, function).Environment.Variables
	env["PROVIDER_URL"] = providerURL
	if _, err := d.lambda.UpdateFunctionConfiguration(t.Context(), &lambda.UpdateFunctionConfigurationInput{
		FunctionName: &function, Environment: &lambdatypes.Environment{Variables: env},
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.updated(t.Context(), function); err != nil {
		t.Fatal(err)
	}
	if _, err := d.lambda.UpdateFunctionCode(t.Context(), &lambda.UpdateFunctionCodeInput{FunctionName: &function, ZipFile: chargeArchive}); err != nil {
		t.Fatal(err)
	}
	if err := d.updated(t.Context(), function); err != nil {
		t.Fatal(err)
	}
}

// updated waits until a function has been updated.
func (d *deployment) updated(ctx context.Context, function string) error {
	waiter := lambda.NewFunctionUpdatedV2Waiter(d.lambda, func(o *lambda.FunctionUpdatedV2WaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	})
	return waiter.Wait(ctx, &lambda.GetFunctionInput{FunctionName: &function}, kit.Patience)
}

// invoke calls a function and waits for its answer. An error of the function is
// returned as its type.
func (d *deployment) invoke(t *testing.T, function string, payload []byte) (answer []byte, functionError string) {
	t.Helper()
	out, err := d.lambda.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &function, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	if out.FunctionError == nil {
		return out.Payload, ""
	}
	var failure struct{ ErrorType string }
	if err := json.Unmarshal(out.Payload, &failure); err != nil {
		t.Fatalf("%v: %s", err, out.Payload)
	}
	return out.Payload, failure.ErrorType
}

// reconcile runs the reconciler once, in addition to its schedule. The reconciler
// reports an error if no due record could be settled, which a test may expect.
func (d *deployment) reconcile(t *testing.T) {
	t.Helper()
	if answer, failure := d.invoke(t, d.reconciler, []byte("{}")); failure != "" {
		t.Logf("the reconciler answered: %s", answer)
	}
}

// resourcesIn returns the resources of a type in a template.
func resourcesIn(t *testing.T, file, kind string) (list []json.RawMessage) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources map[string]struct {
			Type       string
			Properties json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	for _, r := range template.Resources {
		if r.Type == kind {
			list = append(list, r.Properties)
		}
	}
	return list
}

// stackDir is the folder of the stack, in the repository.
const stackDir = "examples/charge-lambda/stack"

// What the tests deploy besides the stack: the function of these tests, and two of
// the stack's own.
var stubbornArchive, chargeArchive, reconcilerArchive []byte

// build builds the functions for this machine's processor.
func build(ctx context.Context, scratch string) (err error) {
	bundle := []string{"run", "./bundle", "-arch", runtime.GOARCH}
	if err := command(ctx, stackDir, os.Environ(), "go", bundle...); err != nil {
		return err
	}
	const tests = "github.com/once-lambda/once/tests/"
	bundle = append(bundle, "-o", scratch, "stubborn="+tests+"deployed/deploy/functions/stubborn")
	for _, program := range documented {
		bundle = append(bundle, program+"="+tests+"documents/programs/"+program)
	}
	if err := command(ctx, stackDir, os.Environ(), "go", bundle...); err != nil {
		return err
	}
	for program, dir := range map[string]string{onceProgram: "cmd/once", documentedApp: "tests/deployed/deploy/testdata/documented"} {
		if err := command(ctx, ".", os.Environ(), "go", "build", "-o", filepath.Join(scratch, program), "./"+dir); err != nil {
			return err
		}
	}
	bundles := filepath.Join(engine.Root(), ".cache/bundles")
	for path, into := range map[string]*[]byte{
		filepath.Join(bundles, "charge"): &chargeArchive, filepath.Join(bundles, "reconciler"): &reconcilerArchive, filepath.Join(scratch, "stubborn"): &stubbornArchive,
	} {
		if *into, err = os.ReadFile(path + "-" + runtime.GOARCH + ".zip"); err != nil {
			return err
		}
	}
	return nil
}

// Programs in the folder of the tests.
const (
	onceProgram   = "once"
	documentedApp = "documented"
)

const (
	account = "000000000000"
	region  = "us-east-1"
	// orderTimeout is the time-out of the function behind the queue, in seconds.
	orderTimeout = slowest
)

// stackName is a new one each time: LocalStack cannot update a stack that has a
// stage of an API, and loses the stage.
var stackName = "Charge" + rand.Text()[:8]

// cdk is the CDK's command line for LocalStack.
type cdk struct {
	endpoint, scratch, program string
	env                        []string
}

// newCDK installs the version in the stack's lock file, once.
func newCDK(ctx context.Context, scratch, endpoint string) (*cdk, error) {
	said, err := output(ctx, stackDir, os.Environ(), "./cdk", "install")
	if err != nil {
		return nil, err
	}
	programs := strings.TrimSpace(said)
	modules := filepath.Dir(programs)
	c := &cdk{endpoint: endpoint, scratch: scratch, program: filepath.Join(programs, "cdklocal")}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") { // no real account's settings
			c.env = append(c.env, variable)
		}
	}
	c.env = append(c.env, "NODE_PATH="+modules, "PATH="+programs+":"+os.Getenv("PATH"),
		"AWS_ENDPOINT_URL="+endpoint, "AWS_ENDPOINT_URL_S3="+endpoint, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_REGION="+region, "AWS_DEFAULT_REGION="+region, "CDK_DEFAULT_ACCOUNT="+account, "CDK_DEFAULT_REGION="+region,
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
		"CI=true", "CDK_HOME="+scratch, "CDK_DISABLE_VERSION_CHECK=1", "CDK_DISABLE_CLI_TELEMETRY=1",
		// Do not warn about the age of these major versions of Node.
		"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=18,20")
	return c, nil
}

// bootstrap creates what the CDK needs in an account. It needs no app.
func (c *cdk) bootstrap(ctx context.Context) error {
	return command(ctx, c.scratch, c.env, c.program, "bootstrap", "--no-notices", "aws://"+account+"/"+region)
}

// template returns the path of the synthesised stack.
func (c *cdk) template() string {
	return filepath.Join(c.scratch, "cdk.out", stackName+".template.json")
}

// deploy deploys the stack, whose functions charge at the provider's address, and
// returns its outputs.
func (c *cdk) deploy(ctx context.Context, providerURL string) (outputs map[string]string, err error) {
	return c.deployApp(ctx, stackDir, c.scratch, stackName, "-c", "providerUrl="+providerURL, "-c", fmt.Sprintf("orderTimeout=%d", orderTimeout))
}

// deployApp deploys the app of a folder as a stack, with its template and outputs in
// another folder, and returns the outputs.
func (c *cdk) deployApp(ctx context.Context, dir, out, name string, args ...string) (outputs map[string]string, err error) {
	file := filepath.Join(out, "outputs.json")
	args = append([]string{
		"deploy", "--no-notices", "--require-approval", "never", "--output", filepath.Join(out, "cdk.out"), "--outputs-file", file,
		"-c", "stack=" + name, "-c", "arch=" + runtime.GOARCH,
	}, args...)
	if err := command(ctx, dir, c.env, c.program, args...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var stacks map[string]map[string]string
	err = json.Unmarshal(text, &stacks)
	return stacks[name], err
}

// command runs a program in a folder, relative to the repository's root. All
// processes that it started end with it. An error contains the output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	_, err := output(ctx, dir, env, name, args...)
	return err
}

// output is command, and returns the program's standard output.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	if cmd.Dir = dir; !filepath.IsAbs(dir) {
		cmd.Dir = filepath.Join(engine.Root(), dir)
	}
	cmd.Env = env
	var printed, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complained
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, &printed, &complained)
	}
	return printed.String(), nil
}

// The table can be used as a store, and is paid by request. Package infra compares its
// template.
func TestTable(t *testing.T) {
	t.Parallel()
	if err := storeOf(t, stack.records).Check(t.Context()); err != nil { // keys, index, time to live
		t.Error(err)
	}
	table, err := stack.dynamodb.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &stack.records})
	if err != nil {
		t.Fatal(err)
	}
	if mode := table.Table.BillingModeSummary; mode == nil || mode.BillingMode != types.BillingModePayPerRequest {
		t.Errorf("the table is billed as %+v, want by request", mode)
	}
}

// F34, F90: a record is deleted once its time to live is over, and others stay.
// Its key counts as new then.
func TestExpiredRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	customer, expired, kept := newCustomer(), rand.Text(), rand.Text()
	first := map[string]reply{}
	for _, key := range []string{expired, kept} {
		first[key] = byFunctionURL().post(t, key, aCharge(customer))
		if first[key].status != http.StatusCreated {
			t.Fatalf("got %v, want a charge", first[key])
		}
	}
	// The record's retention ended an hour and a second ago.
	over := time.Now().Add(-time.Second)
	id := recordKey(charge.RecordIDOf(expired))
	_, err := stack.dynamodb.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &stack.records, Key: id,
		UpdateExpression:         aws.String("SET #ttl = :ttl, #exp = :exp"),
		ConditionExpression:      aws.String("attribute_exists(pk) AND attribute_exists(#ttl)"),
		ExpressionAttributeNames: map[string]string{"#ttl": tabledef.TTLAttribute, "#exp": "exp"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":ttl": number(over.Unix()), ":exp": number(over.Add(-time.Hour).UnixMilli()),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	removeExpired(t)
	item, err := stack.dynamodb.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &stack.records, Key: id, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if len(item.Item) != 0 {
		t.Errorf("the record is still there: %v", item.Item)
	}
	wantReplay(t, byFunctionURL().post(t, kept, aCharge(customer)), first[kept])
	// The handler runs again. The customer is not charged again only because the
	// provider remembers the key for longer.
	asked := pay.times(customer)
	if r := byFunctionURL().post(t, expired, aCharge(customer)); r.status != http.StatusCreated || r.replayed() || pay.times(customer) != asked+1 {
		t.Errorf("got %v after %d calls to the provider, want a new run", r, pay.times(customer)-asked)
	}
	wantCharges(t, customer, 2)
}

func recordKey(id idempotent.RecordID) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{tabledef.PartitionKey: &types.AttributeValueMemberS{Value: string(id)}}
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// removeExpired does at once what DynamoDB does within days. LocalStack goes through all
// tables, and fails if another test creates or deletes one meanwhile.
func removeExpired(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "LocalStack has removed the expired items", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, stack.cdk.endpoint+"/_aws/dynamodb/expired", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
