// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
)

// How a run of the stubborn function ends, and the error that its caller gets.
const (
	sleep = "sleep" // past the time-out
	kill  = "kill"  // after the effect
)

var told = map[string]string{sleep: "Sandbox.Timedout", kill: "Runtime.ExitError"}

// stubborn is a function that never returns from the payment provider.
type stubborn struct{ name, ending, table, operation string }

// slowest is the time-out of functions that are killed, in seconds. A busy machine needs
// it to start a process and to run it up to its end.
const slowest = 30

func newStubborn(t *testing.T, ending string, env map[string]string) stubborn {
	t.Helper()
	s := stubborn{"stubborn-" + strings.ToLower(rand.Text()), ending, cmp.Or(env["ONCE_TABLE"], stack.records), env["OPERATION"]}
	env["ENDING"] = ending
	stack.create(t, s.name, stubbornArchive, slowest, env)
	return s
}

// post sends a request to it, as its function URL would. If Lambda ended the run,
// there is no answer.
func (s stubborn) post(t *testing.T, key, body string) (r reply, killed bool) {
	t.Helper()
	payload, err := json.Marshal(anEvent(key, body))
	if err != nil {
		t.Fatal(err)
	}
	answer, failure := stack.invoke(t, s.name, payload)
	if failure == told[s.ending] {
		return r, true
	}
	var response events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(answer, &response); err != nil || failure != "" {
		t.Fatalf("got %q %s, want an answer or %s", failure, answer, told[s.ending])
	}
	return reply{response.StatusCode, nil, response.Body}, false
}

// anEvent is the event of a request for a charge by a function URL.
func anEvent(key, body string) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: "/charges", Body: body,
		Headers: map[string]string{"content-type": "application/json", "idempotency-key": strconv.Quote(key)},
	}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = http.MethodPost, "/charges"
	return e
}

// wantKilled sends a request whose run Lambda has to end. The lease in its record ends
// the margin of 3 s after the time at which Lambda kills the run.
func (s stubborn) wantKilled(t *testing.T, key, body string) {
	t.Helper()
	sent := time.Now()
	if r, killed := s.post(t, key, body); !killed {
		t.Fatalf("got %v, want %s", r, told[s.ending])
	}
	record, err := storeOf(t, s.table).Get(t.Context(), s.id(key))
	if err != nil {
		t.Fatal(err)
	}
	// The run had begun when the request was sent, or later.
	if earliest := sent.Add(slowest*time.Second + 3*time.Second).Truncate(time.Millisecond); record.LeaseEnd.Before(earliest) {
		t.Errorf("the lease ends at %v, want %v or later: Lambda's time-out and the margin", record.LeaseEnd, earliest)
	}
}

// id returns the id of the record of a key.
func (s stubborn) id(key string) idempotent.RecordID {
	return idempotent.Key{Operation: s.operation, Scope: idempotent.Global, ID: key}.RecordID()
}

// afterLease returns the answer after the end of the lease of a killed run. Until then
// the answer is "in progress".
func (s stubborn) afterLease(t *testing.T, key, body string) (r reply, killed bool) {
	t.Helper()
	store := storeOf(t, s.table)
	kit.SetLease(t, store, s.id(key), time.Now().Add(time.Hour))
	r, _ = s.post(t, key, body)
	wantProblem(t, r, http.StatusConflict, "in-progress")
	kit.SetLease(t, store, s.id(key), time.Now().Add(-time.Second))
	return s.post(t, key, body)
}

// aKilledCharge returns the key of a charge of the stack's own operation, whose
// worker has just been killed.
func aKilledCharge(t *testing.T, customer string) (key string) {
	t.Helper()
	s := newStubborn(t, kill, map[string]string{"RECOVERY": "reconcile", "OPERATION": charge.Operation})
	key = rand.Text()
	s.wantKilled(t, key, aCharge(customer))
	return key
}

// FM10: the worker dies after its effect and before the record of it. The stack's
// reconciler queries the provider on its schedule, and the client that retries gets its
// charge. tests/deployed/first has a worker that is killed at its time-out.
func TestTheReconcilerFindsTheEffect(t *testing.T) {
	t.Parallel()
	customer := newCustomer()
	key := aKilledCharge(t, customer)
	var last reply
	kit.Eventually(t, "the charge is settled", func() bool {
		last = byFunctionURL().post(t, key, aCharge(customer))
		return !last.is(http.StatusConflict, "in-progress") && !last.is(http.StatusConflict, "outcome-unknown")
	})
	booked := pay.charges(t, customer)
	if len(booked) != 1 || pay.times(customer) != 1 {
		t.Fatalf("%d charges, requested %d times, want one charge", len(booked), pay.times(customer))
	}
	if last.status != http.StatusCreated || !last.replayed() || !strings.Contains(last.body, booked[0].ID) {
		t.Errorf("got %v, want the replay of charge %s", last, booked[0].ID)
	}
	wantReplay(t, byFunctionURL().post(t, key, aCharge(customer)), last)
}

// INV-9, F41: if the provider never answers about a record, the record is handed over to
// operators, and stays as it is.
func TestTheReconcilerGivesUp(t *testing.T) {
	t.Parallel()
	customer := newCustomer()
	key := aKilledCharge(t, customer)
	id := charge.RecordIDOf(key)
	pay.hush(id.DownstreamKey())
	kit.SetLease(t, storeOf(t, stack.records), id, time.Now().Add(-time.Second))
	queue := stack.configuration(t, stack.reconciler).Environment.Variables["ONCE_EXHAUSTED_QUEUE_URL"]
	var handed struct {
		Record string `json:"record_id"`
		Key    string `json:"downstream_key"`
	}
	kit.Eventually(t, "the record is in the queue", func() bool {
		byFunctionURL().post(t, key, aCharge(customer)) // finds the killed run before the next scan does
		waitedForAWeek(t, id)
		stack.reconcile(t)
		out, err := stack.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queue, WaitTimeSeconds: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return false
		}
		if err := json.Unmarshal([]byte(*out.Messages[0].Body), &handed); err != nil {
			t.Fatal(err)
		}
		return true
	})
	if handed.Record != string(id) || handed.Key != id.DownstreamKey() {
		t.Errorf("got %+v, want the record %s", handed, id)
	}
	wantProblem(t, byFunctionURL().post(t, key, aCharge(customer)), http.StatusConflict, "outcome-unknown")
	wantCharges(t, customer, 1)
}

// waitedForAWeek makes an unknown record due, and older than the age at which
// reconciliation gives up. If the reconciler writes first, it is done again.
func waitedForAWeek(t *testing.T, id idempotent.RecordID) {
	t.Helper()
	now := time.Now()
	_, err := stack.dynamodb.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &stack.records, Key: recordKey(id),
		UpdateExpression:         aws.String("SET #since = :old, #due = :now"),
		ConditionExpression:      aws.String("#state = :unknown AND #since > :old"),
		ExpressionAttributeNames: map[string]string{"#since": "dt", "#due": tabledef.IndexSortKey, "#state": "st"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":old": number(now.Add(-8 * 24 * time.Hour).UnixMilli()), ":now": number(now.UnixMilli()), ":unknown": &types.AttributeValueMemberS{Value: "U"},
		},
	})
	if _, notYet := errors.AsType[*types.ConditionalCheckFailedException](err); err != nil && !notYet {
		t.Fatal(err)
	}
}

// traffic is a set of clients that charge one customer after the other and repeat
// every request until it has its outcome.
type traffic struct {
	enough chan struct{} // closed by stop
	stop   func()
	wg     sync.WaitGroup

	mu      sync.Mutex
	paid    []payment
	refused map[int]int // answers without an outcome, by status
}

// payment is a request with its outcome.
type payment struct {
	door          door
	customer, key string
	outcome       reply
}

func (tr *traffic) start(t *testing.T, doors ...door) {
	for _, d := range doors {
		tr.wg.Go(func() {
			for {
				select {
				case <-tr.enough:
					return
				default:
					tr.pay(t, d)
				}
			}
		})
	}
}

func (tr *traffic) pay(t *testing.T, d door) {
	p := payment{door: d, customer: newCustomer(), key: rand.Text()}
	pay.after(p.customer, func(int) bool {
		time.Sleep(100 * time.Millisecond) // the time in which the function may be replaced
		return true
	})
	if !tr.try(t, &p) {
		tr.wg.Go(func() { tr.insist(t, &p) }) // and the loop continues
	}
}

// try sends the request once, and reports whether it was the last time.
func (tr *traffic) try(t *testing.T, p *payment) (over bool) {
	p.outcome = p.door.post(t, p.key, aCharge(p.customer))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch s := p.outcome.status; {
	case s == http.StatusCreated:
		tr.paid = append(tr.paid, *p)
		return true
	case s >= 400 && s < 500 && s != http.StatusConflict && s != http.StatusTooManyRequests:
		t.Errorf("%s: got %v", p.door.name, p.outcome)
		tr.stop() // one such failure is enough
		return true
	default:
		tr.refused[s]++
		return false
	}
}

func (tr *traffic) insist(t *testing.T, p *payment) {
	for deadline := time.Now().Add(kit.Patience); !tr.try(t, p); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: no outcome for %s: %v", p.door.name, p.key, p.outcome)
			return
		}
	}
}

func (tr *traffic) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.paid)
}

// The functions get new code and a new configuration while requests run, as in a
// deployment of the stack. LocalStack ends the old ones at once, with their
// running requests. No charge is made twice, and every client gets its outcome.
func TestRedeployUnderTraffic(t *testing.T) {
	tr := &traffic{enough: make(chan struct{}), refused: map[int]int{}}
	tr.stop = sync.OnceFunc(func() { close(tr.enough) })
	tr.start(t, byFunctionURL(), byREST(0), byREST(1))
	defer tr.wg.Wait()
	defer tr.stop()
	kit.Eventually(t, "there is traffic", func() bool { return tr.count() >= 20 })
	for _, function := range []string{stack.chargesURL, stack.chargesREST, stack.chargesURL, stack.chargesREST} {
		stack.redeploy(t, function, pay.address("v2"))
		more := tr.count() + 10
		kit.Eventually(t, "the traffic goes on", func() bool { return tr.count() >= more })
	}
	tr.stop()
	// Requests that were cut off have to wait for the reconciler.
	t.Parallel()
	tr.wg.Wait()

	t.Logf("%d charges, %d requests by the old functions and %d by the new; not yet an outcome, by status: %v",
		len(tr.paid), pay.times("v1"), pay.times("v2"), tr.refused)
	if old, replaced := pay.times("v1"), pay.times("v2"); old < 20 || replaced < 20 {
		t.Errorf("%d requests by the old functions and %d by the new, want 20 of each", old, replaced)
	}
	if cut := tr.refused[http.StatusBadGateway] + tr.refused[http.StatusInternalServerError]; cut == 0 {
		t.Error("no request was cut off")
	}
	for _, p := range tr.paid {
		wantCharges(t, p.customer, 1)
		if r := p.door.post(t, p.key, aCharge(p.customer)); r.status != p.outcome.status || r.body != p.outcome.body || !r.replayed() {
			t.Errorf("%s: got %v, want the replay of %v", p.door.name, r, p.outcome)
		}
	}
}
