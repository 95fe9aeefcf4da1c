// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

// The largest transaction has exactly 4 MB, including its record. A record that is
// too large, or does not encode, is refused before anything is sent.
func TestTransactInput_Size(t *testing.T) {
	t.Parallel()
	s := &Store{table: "once", layout: plain}
	key := idempotent.Key{Operation: "charge", Scope: "tenant", ID: "1"}
	r := driver.Record{ID: key.RecordID(), State: driver.StateInProgress, Reason: driver.ReasonClaimed, Attempt: 1, Fingerprint: idempotent.FingerprintBytes(nil), Created: time.UnixMilli(1), LeaseEnd: time.UnixMilli(2)}
	record, err := plain.encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	for over, fits := range map[int]bool{0: true, 1: false} {
		room := maxTransactSize - itemSize(record) - len(tabledef.PartitionKey) + over
		items := []types.TransactWriteItem{{Delete: &types.Delete{Key: item{tabledef.PartitionKey: text(strings.Repeat("x", room))}}}}
		if _, err := s.transactInput(&r, driver.Version{}, items); fits != (err == nil) || err != nil && !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("%d bytes too many: %v", over, err)
		}
	}
	for over, fits := range map[int]bool{0: true, 1: false} { // of one item
		room := maxItem - len(tabledef.PartitionKey) + over
		items := []types.TransactWriteItem{{Put: &types.Put{Item: item{tabledef.PartitionKey: text(strings.Repeat("x", room))}}}}
		if _, err := s.transactInput(&r, driver.Version{}, items); fits != (err == nil) || err != nil && !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("an item of %d bytes too many: %v", over, err)
		}
	}
	large := r
	large.Ref = strings.Repeat("x", maxItem)
	if _, err := s.transactInput(&large, driver.Version{}, nil); !errors.Is(err, idempotent.ErrNotApplied) || !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("a large record: %v", err)
	}
	odd := r
	odd.Steps = []driver.StepRecord{{}}
	if _, err := s.transactInput(&odd, driver.Version{}, nil); !errors.Is(err, idempotent.ErrNotApplied) {
		t.Errorf("a record that does not encode: %v", err)
	}
	if n := transactItemSize(&types.TransactWriteItem{}); n != 0 {
		t.Errorf("an empty item has %d bytes", n)
	}
}

// lossyWire answers the SDK's HTTP requests: the n-th request with the n-th
// answer, and all later ones with the last.
type lossyWire struct {
	answers []func(*http.Request) (*http.Response, error)
	tokens  map[string]bool
	sent    int
}

func (w *lossyWire) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, token, _ := strings.Cut(string(body), `"ClientRequestToken":"`)
	token, _, _ = strings.Cut(token, `"`)
	if w.tokens == nil {
		w.tokens = map[string]bool{}
	}
	if token != "" { // of a transaction
		w.tokens[token] = true
	}
	if w.sent++; w.sent > 1000 {
		panic("the tries do not end")
	}
	return w.answers[min(w.sent, len(w.answers))-1](r)
}

func answer(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func refuse(code, more string) func(*http.Request) (*http.Response, error) {
	return answer(http.StatusBadRequest, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"no","Message":"no"%s}`, code, more))
}

func cancel(code string) func(*http.Request) (*http.Response, error) {
	return refuse("TransactionCanceledException", fmt.Sprintf(`,"CancellationReasons":[{"Code":"None"},{"Code":%q,"Message":"no"}]`, code))
}

var (
	lose   = func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	accept = answer(http.StatusOK, "{}")
	hang   = func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	cutOff = answer(http.StatusOK, `{"Unfinished`)
)

// refusals are DynamoDB's final and temporary refusals of a transaction.
var refusals = map[string]func(*http.Request) (*http.Response, error){
	"validation":              refuse("ValidationException", ""),
	"missing table":           refuse("ResourceNotFoundException", ""),
	"access denied":           refuse("AccessDeniedException", ""),
	"unknown client":          refuse("UnrecognizedClientException", ""),
	"expired token":           refuse("ExpiredTokenException", ""),
	"bad signature":           refuse("InvalidSignatureException", ""),
	"throttled":               refuse("ProvisionedThroughputExceededException", ""),
	"throttling":              refuse("ThrottlingException", ""),
	"over the limit":          refuse("RequestLimitExceeded", ""),
	"collection":              refuse("ItemCollectionSizeLimitExceededException", ""),
	"conflict":                refuse("TransactionConflictException", ""),
	"cancelled: condition":    cancel("ConditionalCheckFailed"),
	"cancelled: conflict":     cancel("TransactionConflict"),
	"cancelled: throttling":   cancel("ThrottlingError"),
	"cancelled: throughput":   cancel("ProvisionedThroughputExceeded"),
	"cancelled: validation":   cancel("ValidationError"),
	"cancelled: collection":   cancel("ItemCollectionSizeLimitExceeded"),
	"cancelled: denied":       cancel("AccessDenied"),
	"cancelled: record large": refuse("TransactionCanceledException", `,"CancellationReasons":[{"Code":"ValidationError","Message":"Item size has exceeded the maximum allowed size"},{"Code":"None"}]`),
	"cancelled: record gone":  refuse("TransactionCanceledException", `,"CancellationReasons":[{"Code":"ConditionalCheckFailed"},{"Code":"None"}]`),
	"cancelled: another record": refuse("TransactionCanceledException", `,"CancellationReasons":[{"Code":"ConditionalCheckFailed","Item":{
		"pk": {"S": "charge#key"}, "v": {"N": "1"}, "st": {"S": "C"}, "rec": {"S": "rerun"}, "att": {"N": "1"},
		"own": {"B": "AAAAAAAAAAAAAAAAAAAAAA=="}, "wid": {"B": "CQAAAAAAAAAAAAAAAAAAAA=="},
		"fp": {"B": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}},{"Code":"None"}]`),
}

// transactOver sends one transaction through an SDK client over the wire. The
// client's own settings ask for many attempts.
func transactOver(ctx context.Context, w *lossyWire, optFns ...func(*dynamodb.Options)) (*driver.Record, error) {
	cfg := aws.Config{
		Region:           "eu-central-1",
		HTTPClient:       w,
		RetryMaxAttempts: 50, // as AWS_MAX_ATTEMPTS sets it
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	}
	s, err := New(NewClient(cfg, optFns...), "once")
	if err != nil {
		return nil, err
	}
	r := driver.Record{ID: "charge#key", State: driver.StateCompleted, Version: driver.Version{7}, Attempt: 1}
	return s.transaction([]types.TransactWriteItem{{Delete: &types.Delete{TableName: aws.String("orders"), Key: item{"id": text("o-1")}}}})(ctx, r, driver.Version{1})
}

// A refusal after a try that was applied and whose reply was lost is never
// reported as "not applied".
func TestTransact_RefusalAfterALostReply(t *testing.T) {
	t.Parallel()
	for how, first := range map[string]func(*http.Request) (*http.Response, error){
		"lost":     lose,
		"hung":     hang,
		"error":    answer(http.StatusInternalServerError, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}`),
		"progress": refuse("TransactionInProgressException", ""),
	} {
		for name, then := range refusals {
			t.Run(how+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					w := &lossyWire{answers: []func(*http.Request) (*http.Response, error){first, then}}
					standing, err := transactOver(ctx, w)
					if standing != nil || err == nil || w.sent < 2 || ctx.Err() != nil {
						t.Fatalf("got %v, %v after %d requests", standing, err, w.sent)
					}
					for _, claim := range []error{driver.ErrNotApplied, driver.ErrNoRecord, driver.ErrTooLarge} {
						if errors.Is(err, claim) {
							t.Errorf("%v matches %v", err, claim)
						}
					}
					if !strings.HasPrefix(err.Error(), "dynamostore: it is not known whether the transaction was applied after ") {
						t.Errorf("it says %v", err)
					}
					if len(w.tokens) != 1 {
						t.Errorf("%d request tokens", len(w.tokens))
					}
				})
			})
		}
	}
}

// A refusal is definite if every earlier try had an answer. Each try is one
// attempt of the SDK, regardless of the client's settings.
func TestTransact_DefiniteRefusals(t *testing.T) {
	t.Parallel()
	for name, answer := range refusals {
		for client, optFn := range map[string]func(*dynamodb.Options){
			"as it is":       func(*dynamodb.Options) {},
			"with a retryer": func(o *dynamodb.Options) { o.Retryer = retry.AddWithMaxAttempts(retry.NewStandard(), 9) },
			"with attempts":  func(o *dynamodb.Options) { o.RetryMaxAttempts = 9 },
		} {
			t.Run(name+", "+client, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &lossyWire{answers: []func(*http.Request) (*http.Response, error){answer}}
					if strings.Contains(name, "gone") { // a read follows
						w.answers = append(w.answers, accept)
					}
					standing, err := transactOver(t.Context(), w, optFn)
					switch {
					case strings.Contains(name, "another"):
						if err != nil || standing.Version != (driver.Version{9}) {
							t.Errorf("got %v, %v", standing, err)
						}
					case strings.Contains(name, "gone"):
						if !errors.Is(err, driver.ErrNoRecord) {
							t.Errorf("got %v", err)
						}
					case !errors.Is(err, driver.ErrNotApplied),
						errors.As(err, new(*ConditionError)) != strings.Contains(name, "condition"),
						errors.Is(err, driver.ErrTooLarge) != strings.Contains(name, "large"):
						t.Errorf("got %v", err)
					}
					want := 1
					switch {
					case strings.Contains(name, "gone"):
						want = 2
					case strings.Contains(name, "conflict"), strings.HasPrefix(name, "cancelled: thr"):
						want = 20
					case strings.HasPrefix(name, "thr"), name == "over the limit":
						want = 6
					}
					if w.sent != want {
						t.Errorf("%d requests, want %d", w.sent, want)
					}
				})
			})
		}
	}
}

// If an answer is not a refusal by DynamoDB, the outcome stays unknown, after any
// number of tries. The error has the try without an answer, and how the last try ended if
// that was another way.
func TestTransact_Doubt(t *testing.T) {
	t.Parallel()
	const last = "; the last try ended with: "
	progress := refuse("TransactionInProgressException", "")
	for name, c := range map[string]struct {
		first, then func(*http.Request) (*http.Response, error) // nil: as the first
		sent        int
		says        string
	}{
		"every reply lost":         {lose, nil, 6, "after 6 tries: "},
		"every try hangs":          {hang, nil, 6, "after 6 tries: "},
		"error 500":                {answer(500, `{}`), nil, 6, "after 6 tries: "},
		"error 503":                {answer(503, `<html>`), nil, 6, "after 6 tries: "},
		"a reply cut off":          {cutOff, nil, 1, "was applied: "},
		"another request's":        {refuse("IdempotentParameterMismatchException", ""), nil, 1, "was applied: IdempotentParameterMismatchException: no"},
		"in progress":              {progress, nil, 20, "after 20 tries: TransactionInProgressException: no"},
		"a refusal at last":        {progress, refuse("ValidationException", ""), 2, "after 2 tries: TransactionInProgressException: no" + last + "ValidationException: no; "},
		"a time-out at a proxy":    {answer(408, `{"__type":"Timeout"}`), nil, 1, "was applied: "},
		"a proxy's refusal":        {answer(403, `<html>no</html>`), nil, 1, "was applied: "},
		"a refusal without a code": {answer(403, `{}`), nil, 1, "was applied: "},
		"a request timed out":      {refuse("RequestTimeout", ""), nil, 6, "after 6 tries: "},
		"a request timed out, too": {refuse("RequestTimeoutException", ""), nil, 6, "after 6 tries: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &lossyWire{answers: []func(*http.Request) (*http.Response, error){c.first}}
				if c.then != nil {
					w.answers = append(w.answers, c.then)
				}
				_, err := transactOver(t.Context(), w)
				if err == nil || errors.Is(err, driver.ErrNotApplied) || w.sent != c.sent || !strings.Contains(err.Error(), "not known whether") {
					t.Fatalf("got %v after %d requests, want an unknown outcome after %d", err, w.sent, c.sent)
				}
				if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), last) != strings.Contains(c.says, last) {
					t.Errorf("got %v, want %q", err, c.says)
				}
			})
		})
	}
}

// A try without an answer is repeated; the success of the next try, or the store's
// own record, is the result.
func TestTransact_RetryAfterALostReply(t *testing.T) {
	t.Parallel()
	own := refuse("TransactionCanceledException", `,"CancellationReasons":[{"Code":"ConditionalCheckFailed","Item":{
		"pk": {"S": "charge#key"}, "v": {"N": "1"}, "st": {"S": "C"}, "rec": {"S": "rerun"}, "att": {"N": "1"},
		"own": {"B": "AAAAAAAAAAAAAAAAAAAAAA=="}, "wid": {"B": "BwAAAAAAAAAAAAAAAAAAAA=="},
		"fp": {"B": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}},{"Code":"None"}]`)
	for _, first := range []func(*http.Request) (*http.Response, error){lose, hang, answer(500, "{}")} {
		for _, then := range []func(*http.Request) (*http.Response, error){accept, own} {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := &lossyWire{answers: []func(*http.Request) (*http.Response, error){first, then}}
				standing, err := transactOver(t.Context(), w)
				if err != nil || standing != nil && standing.Version != (driver.Version{7}) || w.sent != 2 {
					t.Errorf("got %v, %v after %d requests", standing, err, w.sent)
				}
				if took := time.Since(began); took > 5100*time.Millisecond {
					t.Errorf("it took %s", took)
				}
			})
		}
	}
}

// A request that was never sent was not applied.
func TestTransact_NeverSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &lossyWire{answers: []func(*http.Request) (*http.Response, error){accept}}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := transactOver(ended, w); !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.Canceled) {
			t.Errorf("the context had ended: %v", err)
		}
		for name, optFn := range map[string]func(*dynamodb.Options){
			"no credentials": func(o *dynamodb.Options) {
				o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{}, errors.New("no credentials")
				})
			},
			"no region": func(o *dynamodb.Options) { o.Region = "" },
		} {
			if _, err := transactOver(t.Context(), w, optFn); !errors.Is(err, driver.ErrNotApplied) {
				t.Errorf("%s: %v", name, err)
			}
		}
		s := &Store{table: "once", layout: plain, client: NewClient(aws.Config{HTTPClient: w, Region: "eu-central-1"})}
		r := driver.Record{ID: "charge#key", State: driver.StateCompleted}
		if _, err := s.transaction([]types.TransactWriteItem{{Delete: &types.Delete{Key: item{"id": text("o-1")}}}})(t.Context(), r, driver.Version{}); !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "TableName") {
			t.Errorf("an item without its table: %v", err)
		}
		if w.sent != 0 {
			t.Errorf("%d requests were sent", w.sent)
		}
	})
}

// The context ends between two tries, or during one.
func TestTransact_ContextEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers    []func(*http.Request) (*http.Response, error)
		notApplied bool
	}{
		"after a conflict":      {[]func(*http.Request) (*http.Response, error){cancel("TransactionConflict")}, true},
		"during a try":          {[]func(*http.Request) (*http.Response, error){hang}, false},
		"after a lost reply":    {[]func(*http.Request) (*http.Response, error){lose}, false},
		"after a hung try, too": {[]func(*http.Request) (*http.Response, error){hang, cancel("TransactionConflict")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				_, err := transactOver(ctx, &lossyWire{answers: c.answers})
				if err == nil || errors.Is(err, driver.ErrNotApplied) != c.notApplied {
					t.Errorf("got %v", err)
				}
				// A pause that the deadline would cut short does not start.
				if c.notApplied && ctx.Err() != nil {
					t.Errorf("it ended with the context: %v", err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(15*time.Millisecond, cancel)
				_, err := transactOver(ctx, &lossyWire{answers: c.answers})
				if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNotApplied) != c.notApplied {
					t.Errorf("cancelled: got %v", err)
				}
				// The error also has DynamoDB's latest answer.
				if _, ok := errors.AsType[*types.TransactionCanceledException](err); c.notApplied && !ok {
					t.Errorf("cancelled during a pause: got %v, want the conflict", err)
				}
			})
		})
	}
}

// optionsClient calls the options with empty settings, like a client other than
// the SDK's. It is not known whether it sends anything.
type optionsClient struct {
	*dynamodb.Client
	options *dynamodb.Options
	fail    func() error
}

func (c optionsClient) TransactWriteItems(_ context.Context, _ *dynamodb.TransactWriteItemsInput, optFns ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	for _, f := range optFns {
		f(c.options)
	}
	return nil, c.fail()
}

func TestTransact_AnotherClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := optionsClient{options: &dynamodb.Options{}, fail: func() error { return errors.New("something failed") }}
		s := &Store{table: "once", layout: plain, client: c}
		r := driver.Record{ID: "charge#key", State: driver.StateCompleted}
		if _, err := s.transaction(nil)(t.Context(), r, driver.Version{}); err == nil || errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("got %v", err)
		}
		if c.options.HTTPClient != nil {
			t.Error("a client without an HTTP client was given one that cannot send")
		}
	})
}

// suddenContext is a context that has ended as soon as err is set, without waking
// anything up that waits for it.
type suddenContext struct {
	context.Context
	err error
}

func (c *suddenContext) Err() error { return c.err }

// A context that ends together with the pause after a try prevents the next try,
// which is not counted.
func TestTransact_ContextEndsWithThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, tries := &suddenContext{Context: t.Context()}, 0
		c := optionsClient{options: &dynamodb.Options{}, fail: func() error {
			if tries++; tries == 2 {
				ctx.err = context.Canceled
			}
			return &types.TransactionConflictException{}
		}}
		s := &Store{table: "once", layout: plain, client: c}
		r := driver.Record{ID: "charge#key", State: driver.StateCompleted}
		_, err := s.transaction(nil)(ctx, r, driver.Version{})
		const want = "dynamostore: nothing was written: the transaction failed after 2 tries: context canceled"
		if tries != 2 || !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrNotApplied) || err.Error() != want {
			t.Errorf("got %v after %d tries, want %q after 2", err, tries, want)
		}
	})
}

// Only a conflict with another writer is repeated as often as conflicts are, and in
// a transaction also a conflict with an earlier try of the same request.
//
// This test and the next are not parallel: a mutant that repeats everything is
// noticed here before it keeps other tests waiting.
func TestIsConflict(t *testing.T) {
	for _, row := range []struct {
		err                error
		conflict, transact bool
	}{
		{&types.TransactionConflictException{}, true, true},
		{&types.ReplicatedWriteConflictException{}, true, true},
		{&types.TransactionInProgressException{}, false, true},
		{&types.ConditionalCheckFailedException{}, false, false},
		{&types.ProvisionedThroughputExceededException{}, false, false},
		{errors.New("connection reset"), false, false},
		{nil, false, false},
	} {
		if got := isConflict(row.err); got != row.conflict {
			t.Errorf("%v: a conflict: got %t, want %t", row.err, got, row.conflict)
		}
		if got := isTransactConflict(row.err); got != row.transact {
			t.Errorf("%v: a conflict of a transaction: got %t, want %t", row.err, got, row.transact)
		}
	}
}

// A refusal that does not pass is not repeated.
func TestTransact_FinalRefusalIsNotRepeated(t *testing.T) {
	w := &lossyWire{answers: []func(*http.Request) (*http.Response, error){refuse("ValidationException", ""), accept}}
	if _, err := transactOver(t.Context(), w); !errors.Is(err, driver.ErrNotApplied) || w.sent != 1 {
		t.Errorf("got %v after %d requests, want the refusal after one", err, w.sent)
	}
}

// The answer to a client that does not use HTTP has no status: a fault of the
// request is a refusal, any other fault may have been applied.
func TestIsRefusal_WithoutAStatus(t *testing.T) {
	t.Parallel()
	for fault, want := range map[smithy.ErrorFault]bool{
		smithy.FaultClient:  true,
		smithy.FaultServer:  false,
		smithy.FaultUnknown: false,
	} {
		if got := isRefusal(&smithy.GenericAPIError{Code: "ValidationException", Fault: fault}); got != want {
			t.Errorf("a fault of the %s: got %t, want %t", fault, got, want)
		}
	}
}
