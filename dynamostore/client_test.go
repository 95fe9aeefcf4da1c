// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// wire answers HTTP requests in place of DynamoDB. Without an answer it is silent.
type wire struct {
	requests atomic.Int32
	answer   func(n int, body string) (*http.Response, error)
}

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	n := int(w.requests.Add(1))
	if w.answer == nil {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return w.answer(n, string(body))
}

func (w *wire) config() aws.Config {
	return aws.Config{
		Region:     "eu-central-1",
		HTTPClient: w,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	}
}

func response(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

func throttled(int, string) (*http.Response, error) {
	return response(http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow down"}`), nil
}

// pauseFor asks the client to wait for some milliseconds.
func pauseFor(milliseconds string) func(int, string) (*http.Response, error) {
	return func(int, string) (*http.Response, error) {
		r := response(http.StatusServiceUnavailable, `{}`)
		r.Header.Set("X-Amz-Retry-After", milliseconds)
		return r, nil
	}
}

func cutOff(int, string) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// A call that fails makes six attempts with pauses of 310 to 620 ms in total
// (AWS_NEW_RETRIES_2026 halves them), regardless of other configuration but the caller's
// own options, of what DynamoDB asks for, and of the SDK's version. One lost reply costs
// little. In an outage of a minute, 200 calls make 100 retries.
func TestNewClient_BoundsRetries(t *testing.T) {
	for _, mode := range []string{"false", "true"} {
		t.Run(mode, func(t *testing.T) {
			t.Setenv("AWS_NEW_RETRIES_2026", mode)
			boundsRetries(t)
		})
	}
}

func boundsRetries(t *testing.T) {
	const ms = time.Millisecond
	twice := func(o *dynamodb.Options) { o.RetryMaxAttempts = 2 }
	status := func(code int) func(int, string) (*http.Response, error) {
		return func(int, string) (*http.Response, error) { return response(code, `{}`), nil }
	}
	type row struct {
		answer      func(int, string) (*http.Response, error)
		optFn       func(*dynamodb.Options)
		requests    int32
		least, most time.Duration
		outage      int32 // requests in the outage; 0: not tried
	}
	for name, row := range map[string]row{
		"throttled":       {throttled, nil, 6, 155 * ms, 620 * ms, 300},
		"cut off":         {cutOff, nil, 6, 155 * ms, 620 * ms, 300},
		"error 500":       {status(500), nil, 6, 155 * ms, 620 * ms, 300},
		"error 503":       {status(503), nil, 6, 155 * ms, 620 * ms, 300},
		"a pause of 3 s":  {pauseFor("3000"), nil, 6, 155 * ms, 620 * ms, 300},
		"a silent socket": {nil, nil, 6, 30*time.Second + 155*ms, 30*time.Second + 620*ms, 300},
		"by an option":    {throttled, twice, 2, 0, 100 * ms, 0},
		"one lost reply": {func(n int, body string) (*http.Response, error) {
			if n == 1 {
				return cutOff(n, body)
			}
			return response(200, `{}`), nil
		}, nil, 2, 0, 20 * ms, 0},
	} {
		// insert makes one call for each pause, and returns the requests and the time of the
		// longest call.
		insert := func(t *testing.T, pauses ...time.Duration) (requests int32, longest time.Duration) {
			w := &hangingWire{wire: wire{answer: row.answer}, always: true}
			cfg := w.config()
			if row.answer != nil {
				cfg = w.wire.config()
			}
			cfg.RetryMaxAttempts = 50 // as AWS_MAX_ATTEMPTS would set it
			cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
			var optFns []func(*dynamodb.Options)
			if row.optFn != nil {
				optFns = append(optFns, row.optFn)
			}
			store := newStore(t, dynamostore.NewClient(cfg, optFns...))
			took := make(chan time.Duration, len(pauses))
			for _, pause := range pauses {
				go func() {
					began := time.Now()
					met, err := store.Insert(t.Context(), someRecord(), at(0))
					if met != nil || (err == nil) != (name == "one lost reply") {
						t.Errorf("got %+v, %v", met, err)
					}
					took <- time.Since(began)
				}()
				time.Sleep(pause)
			}
			for range pauses {
				longest = max(longest, <-took)
			}
			return w.requests.Load(), longest
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if requests, took := insert(t, 0); requests != row.requests || took < row.least || took > row.most {
					t.Errorf("%d attempts in %s, want %d in %s to %s", requests, took, row.requests, row.least, row.most)
				}
				if row.outage > 0 {
					if requests, took := insert(t, slices.Repeat([]time.Duration{300 * ms}, 200)...); requests != row.outage || took > row.most {
						t.Errorf("%d attempts in an outage, the longest call took %s; want %d, and %s", requests, took, row.outage, row.most)
					}
				}
			})
		})
	}
}

// The error of a call that its caller ends is the context's, and blames no time-out.
func TestNewClient_EndedByCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		w := &wire{}
		if _, err := newStore(t, dynamostore.NewClient(w.config())).Get(ctx, "charge#key"); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "no reply") || w.requests.Load() != 1 {
			t.Errorf("%v after %d attempts", err, w.requests.Load())
		}
	})
}

// An answer that comes just when its attempt ends is an answer.
func TestNewClient_LastMoment(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{200: `{}`, 400: `{"__type":"com.amazonaws.dynamodb.v20120810#ValidationException","message":"no"}`} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			client := dynamostore.NewClient((&wire{}).config(), func(o *dynamodb.Options) {
				o.HTTPClient = smithyhttp.ClientDoFunc(func(r *http.Request) (*http.Response, error) {
					requests++
					<-r.Context().Done()
					return response(status, body), nil
				})
			})
			_, err := newStore(t, client).Insert(t.Context(), someRecord(), at(0))
			if api, refused := errors.AsType[smithy.APIError](err); (err == nil) != (status == 200) || err != nil && (!refused || api.ErrorCode() != "ValidationException") || requests != 1 {
				t.Errorf("status %d: %v after %d requests", status, err, requests)
			}
		})
	}
}

// FM24: throttling for longer than the retry budget: the call fails before the deadline.
func TestThrottledForLongerThanTheBudget(t *testing.T) {
	t.Parallel()
	for budget, inTime := range map[time.Duration]bool{100 * time.Millisecond: false, 3 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			began := time.Now()
			_, err := newStore(t, dynamostore.NewClient((&wire{answer: throttled}).config())).Insert(ctx, someRecord(), at(0))
			if took := time.Since(began); err == nil || took > budget || inTime && ctx.Err() != nil {
				t.Errorf("got %v after %s of %s", err, took, budget)
			}
		})
	}
}

// A request through the whole SDK, and a refusal that contains the record. It has no
// checksum, as in DynamoDB Local, and the SDK must not log that.
func TestNewClient_Refusal(t *testing.T) {
	t.Parallel()
	w := &wire{answer: func(_ int, body string) (*http.Response, error) {
		for _, want := range []string{`"ReturnValuesOnConditionCheckFailure":"ALL_OLD"`, `"ConditionExpression":"wid = :was"`} {
			if !strings.Contains(body, want) {
				t.Errorf("the request has no %s", want)
			}
		}
		return response(http.StatusBadRequest, `{
			"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
			"message": "The conditional request failed",
			"Item": {
				"pk": {"S": "charge#key"}, "v": {"N": "1"}, "st": {"S": "C"}, "rec": {"S": "rerun"}, "att": {"N": "1"},
				"own": {"B": "AAAAAAAAAAAAAAAAAAAAAA=="}, "wid": {"B": "AQAAAAAAAAAAAAAAAAAAAA=="},
				"fp": {"B": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}, "res": {"B": ""}
			}}`), nil
	}}
	cfg := w.config()
	cfg.Logger = logging.LoggerFunc(func(_ logging.Classification, format string, a ...any) { t.Errorf(format, a...) })
	met, err := newStore(t, dynamostore.NewClient(cfg)).Replace(t.Context(), fullRecord(), newVersion())
	if err != nil {
		t.Fatal(err)
	}
	if met.ID != "charge#key" || met.State != driver.StateCompleted || met.Version != (driver.Version{1}) || met.Result == nil || len(met.Result) != 0 {
		t.Errorf("got %+v", met)
	}
	if n := w.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// One attempt without a reply costs its time-out, but the call succeeds.
func TestNewClient_OneTryHangs(t *testing.T) {
	t.Parallel()
	insert := func(ctx context.Context, s *dynamostore.Store, _ *dynamodb.Client) error {
		met, err := s.Insert(ctx, someRecord(), at(0))
		if met != nil {
			t.Errorf("got %+v", met)
		}
		return err
	}
	// transact writes items in a request with more bytes than the limit of a small one.
	transact := func(more int) func(context.Context, *dynamostore.Store, *dynamodb.Client) error {
		return func(ctx context.Context, _ *dynamostore.Store, client *dynamodb.Client) error {
			const around = len(`{"ClientRequestToken":"t","TransactItems":[{"Put":{"Item":{"pk":{"S":""}},"TableName":"once"}}]}`)
			_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{ClientRequestToken: aws.String("t"), TransactItems: []types.TransactWriteItem{
				{Put: &types.Put{TableName: aws.String("once"), Item: item{"pk": text(strings.Repeat("x", 1<<20-around+more))}}},
			}})
			return err
		}
	}
	for name, c := range map[string]struct {
		left   time.Duration // zero: no deadline
		took   time.Duration // by the first attempt
		call   func(ctx context.Context, s *dynamostore.Store, client *dynamodb.Client) error
		always bool
		err    string
	}{
		"no deadline":       {0, 5 * time.Second, insert, false, ""},
		"a far deadline":    {15 * time.Minute, 5 * time.Second, insert, false, ""},
		"a near deadline":   {time.Second, 500 * time.Millisecond, insert, false, ""},
		"a nearer deadline": {400 * time.Millisecond, 250 * time.Millisecond, insert, false, ""},
		"a read": {0, 5 * time.Second, func(ctx context.Context, s *dynamostore.Store, _ *dynamodb.Client) error {
			if _, err := s.Get(ctx, "charge#key"); !errors.Is(err, idempotent.ErrNoRecord) {
				return err
			}
			return nil
		}, false, ""},
		"an update": {0, 5 * time.Second, func(ctx context.Context, _ *dynamostore.Store, client *dynamodb.Client) error {
			_, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: aws.String("once"), Key: item{"pk": text("a")}})
			return err
		}, false, ""},
		"a removal": {0, 5 * time.Second, func(ctx context.Context, _ *dynamostore.Store, client *dynamodb.Client) error {
			_, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: aws.String("once"), Key: item{"pk": text("a")}})
			return err
		}, false, ""},
		"a transaction of 1 MB":    {0, 5 * time.Second, transact(0), false, ""},
		"a transaction above 1 MB": {0, 20 * time.Second, transact(1), false, ""},
		"a batch": {0, 20 * time.Second, func(ctx context.Context, s *dynamostore.Store, _ *dynamodb.Client) error {
			_, err := s.PutChunks(ctx, "charge#key", newVersion(), []byte("result"), at(0))
			return err
		}, false, ""},
		"a list": {0, 20 * time.Second, func(ctx context.Context, s *dynamostore.Store, _ *dynamodb.Client) error {
			for _, err := range s.Scan(ctx, func(o *dynamostore.ScanOptions) { o.Segments = 1 }) {
				return err
			}
			return nil
		}, false, ""},
		"every try":             {0, 30 * time.Second, insert, true, "no reply within 5s"},
		"every try in a second": {time.Second, time.Second, insert, true, context.DeadlineExceeded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := t.Context(), func() {}
				if c.left > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.left)
				}
				defer cancel()
				w := &hangingWire{always: c.always}
				began := time.Now()
				client := dynamostore.NewClient(w.config())
				err := c.call(ctx, newStore(t, client), client)
				took, requests := time.Since(began), w.requests.Load()
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !c.always && requests != 2 || c.always && c.left == 0 && requests != 6 {
					t.Errorf("got %v after %d requests", err, requests)
				}
				if took < c.took || took > c.took+700*time.Millisecond || !c.always && c.left > 0 && took > c.took+20*time.Millisecond {
					t.Errorf("it took %s, want %s and pauses", took, c.took)
				}
			})
		})
	}
}

// hangingWire does not answer the first request, or does not answer any.
type hangingWire struct {
	wire
	always bool
}

func (w *hangingWire) config() aws.Config {
	cfg := w.wire.config()
	cfg.HTTPClient = w
	return cfg
}

func (w *hangingWire) Do(r *http.Request) (*http.Response, error) {
	if w.requests.Add(1) == 1 || w.always {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return response(200, `{}`), nil
}

// Open finds the table, the region and the endpoint in the environment.
func TestOpen(t *testing.T) {
	var got struct {
		TableName string
		Key       map[string]any
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if target := r.Header.Get("X-Amz-Target"); target != "DynamoDB_20120810.GetItem" {
			t.Errorf("got a call of %s", target)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	for name, value := range map[string]string{
		"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local",
		"AWS_ENDPOINT_URL_DYNAMODB": server.URL, "ONCE_TABLE": "payments-once",
	} {
		t.Setenv(name, value)
	}
	// The second table has one variable that the first does not have, and the other way round.
	t.Setenv("ONCE_TABLE_OLD_ORDERS", "orders-once")
	t.Setenv("ONCE_PREFIX", "ONCE#")
	t.Setenv("ONCE_SORT_KEY_OLD_ORDERS", "SK")
	t.Setenv("ONCE_PREFIX_OLD_ORDERS", "O#")
	t.Setenv("ONCE_PARTITION_KEY", "PK")
	for _, row := range []struct {
		optFns []func(*dynamostore.Options)
		table  string
		keys   []string
	}{
		{nil, "payments-once", []string{"PK"}},
		{[]func(*dynamostore.Options){named("old-orders")}, "orders-once", []string{"SK", "pk"}},
	} {
		store, err := dynamostore.Open(t.Context(), row.optFns...)
		if err != nil {
			t.Fatal(err)
		}
		id := idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: "k"}.RecordID()
		if _, err := store.Get(t.Context(), id); !errors.Is(err, idempotent.ErrNoRecord) || got.TableName != row.table || !slices.Equal(slices.Sorted(maps.Keys(got.Key)), row.keys) {
			t.Errorf("read from table %q with the keys %v: error %v; want %q and %v", got.TableName, got.Key, err, row.table, row.keys)
		}
		got.Key = nil
	}
}

// The error of Open names what to set.
func TestOpenRefuses(t *testing.T) {
	for _, row := range []struct {
		variable, value, want string
		option                func(*dynamostore.Options)
	}{
		{"ONCE_TABLE", "", "ONCE_TABLE", nil},
		{"ONCE_TABLE", "no table", `"no table"`, nil},
		{"AWS_MAX_ATTEMPTS", "many", "AWS_MAX_ATTEMPTS", nil},
		{"ONCE_SCAN_EVERY", "often", "ONCE_SCAN_EVERY", nil},
		{"ONCE_TABLE_ORDERS", "", "ONCE_TABLE_ORDERS is not set", named("orders")}, // ONCE_TABLE is
		{"ONCE_SCAN_EVERY_ORDERS", "often", "ONCE_SCAN_EVERY_ORDERS", named("orders")},
		{"ONCE_TABLE_ORDERS", "orders-once", `invalid name "Orders"`, named("Orders")},
	} {
		t.Run(row.variable+"="+row.value, func(t *testing.T) {
			t.Setenv("ONCE_TABLE", "payments-once")
			t.Setenv("ONCE_TABLE_ORDERS", "orders-once")
			t.Setenv(row.variable, row.value)
			if store, err := dynamostore.Open(t.Context(), func(o *dynamostore.Options) {
				if row.option != nil {
					row.option(o)
				}
			}); err == nil || store != nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, %v; want an error with %q", store, err, row.want)
			}
		})
	}
}

// On Lambda, Open makes one call while the function starts. It takes at most a second, and a
// failure never fails the start: what to do is logged.
func TestOpenWarmsUp(t *testing.T) {
	refuses := func(code string) func(int, string) (*http.Response, error) {
		return func(int, string) (*http.Response, error) {
			return response(400, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"no"}`), nil
		}
	}
	for name, row := range map[string]struct {
		runtime string
		answer  func(int, string) (*http.Response, error)
		optFn   func(*dynamostore.Options)
		calls   int32
		within  time.Duration
		logged  []string
	}{
		"elsewhere":    {"", nil, nil, 0, 0, nil},
		"on Lambda":    {"127.0.0.1:9001", func(int, string) (*http.Response, error) { return response(200, `{}`), nil }, nil, 1, 0, nil},
		"switched off": {"127.0.0.1:9001", nil, func(o *dynamostore.Options) { o.NoWarmUp = true }, 0, 0, nil},
		"no table": {"127.0.0.1:9001", refuses("ResourceNotFoundException"), nil, 1, 0,
			[]string{`table \"payments-once\"`, "the table does not exist in this account, region and endpoint"}},
		"no permission": {"127.0.0.1:9001", refuses("AccessDeniedException"), nil, 1, 0,
			[]string{"allow dynamodb:GetItem on the table", `a condition on dynamodb:LeadingKeys must name \"ONCE##open\"`}},
		"no way":    {"127.0.0.1:9001", nil, nil, 3, time.Second, []string{"DynamoDB did not answer within 1s: a function in a VPC needs its gateway endpoint"}},
		"an outage": {"127.0.0.1:9001", cutOff, nil, 6, 620 * time.Millisecond, []string{"unexpected EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ONCE_TABLE", "payments-once")
			t.Setenv("ONCE_PREFIX", "ONCE#")
			t.Setenv("AWS_LAMBDA_RUNTIME_API", row.runtime)
			var log strings.Builder
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			synctest.Test(t, func(t *testing.T) {
				w := &wire{}
				if row.answer != nil {
					w.answer = func(n int, body string) (*http.Response, error) {
						if body != `{"Key":{"pk":{"S":"ONCE##open"}},"TableName":"payments-once"}` {
							t.Errorf("the call is %s", body)
						}
						return row.answer(n, body)
					}
				}
				began := time.Now()
				store, err := dynamostore.Open(t.Context(), func(o *dynamostore.Options) {
					o.Client = dynamostore.NewClient(w.config())
					if row.optFn != nil {
						row.optFn(o)
					}
				})
				if took := time.Since(began); err != nil || store == nil || w.requests.Load() != row.calls || took > row.within {
					t.Errorf("got %v after %d attempts and %s, want %d and %s", err, w.requests.Load(), took, row.calls, row.within)
				}
			})
			if lines := strings.Count(log.String(), "\n"); lines != min(1, len(row.logged)) {
				t.Errorf("%d lines were logged", lines)
			}
			if strings.Contains(log.String(), "did not answer") != (name == "no way") {
				t.Errorf("logged %s", log.String())
			}
			for _, want := range row.logged {
				if !strings.Contains(log.String(), want) {
					t.Errorf("logged %s, want %s", log.String(), want)
				}
			}
		})
	}
}

func named(name string) func(*dynamostore.Options) {
	return func(o *dynamostore.Options) { o.Name = name }
}
