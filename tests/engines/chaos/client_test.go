// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

// settings is how a client process is configured, as JSON in its environment.
type settings struct {
	Endpoint string
	Table    string
	Orders   string
	Ledger   string
	Heralds  string // the ledger of announcements
	Provider string
	Skew     time.Duration
	Scan     time.Duration // the pause between two passes over the table
	Barrier  barrier       // where the process stops
	Lawless  bool          // break the guard: see lawless
}

const envClient = "ONCE_CHAOS_CLIENT"

// client is the main function of a client process. It answers the requests on
// its standard input, one after the other, as a Lambda function does.
func client() error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(envClient)), &s); err != nil {
		return err
	}
	books, err := openLedger(s.Ledger)
	if err != nil {
		return err
	}
	heralds, err := openLedger(s.Heralds)
	if err != nil {
		return err
	}
	w := &fixture{orders: s.Orders, ledger: books, provider: s.Provider, skew: s.Skew, barrier: s.Barrier}
	if w.store, err = connect(w.stopsClient(dynamostore.NewClient(engine.Config(s.Endpoint))), s.Table, s.Scan); err != nil {
		return err
	}
	w.guarded = w.stops(herald{w.store, heralds})
	if s.Lawless {
		w.guarded = lawless{w.store}
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var q request
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			return err
		}
		if err := out.Encode(w.serve(q)); err != nil {
			return err
		}
	}
	return in.Err()
}

// serve answers one request.
func (w *fixture) serve(q request) answer {
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), requestKey{}, q.Name), q.Deadline)
	defer cancel()
	if q.Promise == sweep {
		report, err := w.reconcile(ctx)
		if err != nil {
			return answer{Name: q.Name, Class: classStore, Detail: err.Error()}
		}
		return answer{Name: q.Name, Class: classDone, Detail: fmt.Sprint(report)}
	}
	if q.Promise == vital {
		held, err := readVitals()
		if err != nil {
			return answer{Name: q.Name, Class: classFailed, Detail: err.Error()}
		}
		text, _ := json.Marshal(held) // numbers encode
		return answer{Name: q.Name, Class: classDone, Detail: string(text)}
	}
	return w.do(ctx, q)
}

// lawless is a store that breaks the guard: each claim of a key succeeds,
// whatever record there is. It proves that the harness notices.
type lawless struct{ *dynamostore.Store }

// Insert hides the record that refused the claim.
func (l lawless) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	_, err := l.Store.Insert(ctx, r, now)
	return nil, err
}

// herald is a store that notes which announcements the table has acknowledged.
type herald struct {
	*dynamostore.Store
	ledger *ledger
}

// Replace notes an announcement.
func (h herald) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	met, err := h.Store.Replace(ctx, r, was)
	if r.Announced && met == nil && err == nil {
		err = h.ledger.append(entry{Record: string(r.ID), Request: r.RequestID})
	}
	return met, err
}

const (
	// lateKill is how long after its deadline a client is killed whose request has no
	// fence, or hangs: before the lease ends, by each clock.
	lateKill = margin / 3
	// patience is how long any other request may take after its deadline.
	patience = 15 * time.Second
)

// sandbox runs one client process, as Lambda runs an execution environment: one
// request at a time.
type sandbox struct {
	*engine.Process
	name    string
	answers chan answer
	dead    chan struct{} // closed when the process was waited for

	mu      sync.Mutex
	current *request // running
}

// start starts a client process. died is called once when it is dead.
func start(name string, s settings, died func(string)) (*sandbox, error) {
	configured, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envClient+"="+string(configured))
	engine.EndWithParent(cmd)
	p, err := engine.Start(cmd)
	if err != nil {
		return nil, err
	}
	c := &sandbox{Process: p, name: name, answers: make(chan answer, 1), dead: make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(p.Out) //lint:ignore scannererr a killed process ends the lines
		for lines.Scan() {
			var a answer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				break // it was killed while it wrote
			}
			c.answers <- a
		}
		_ = p.Wait() // it was killed
		died(name)
		close(c.dead)
	}()
	return c, nil
}

// send lets the client process serve a request. It returns no answer if the
// process died, and whether the harness killed it because of its deadline.
func (c *sandbox) send(q request) (a answer, answered, overdue bool) {
	line, err := json.Marshal(q)
	if err != nil {
		panic(err) // a request always encodes
	}
	c.mu.Lock()
	c.current = &q
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.current = nil
	}()
	if _, err := c.In.Write(append(line, '\n')); err != nil {
		<-c.dead // only a dead process has closed its end
		return answer{}, false, false
	}
	limit := time.Until(q.Deadline) + patience
	if q.Promise.unfenced() || q.Hangs != 0 {
		limit = time.Until(q.Deadline) + lateKill
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-c.answers:
		return a, true, false
	case <-c.dead:
		return answer{}, false, false
	case <-timer.C:
		c.kill()
		return answer{}, false, true
	}
}

// kill ends the process with SIGKILL and returns when it is dead.
func (c *sandbox) kill() {
	if err := c.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Errorf("chaos: kill %s: %w", c.name, err))
	}
	<-c.dead
}

// stop stops the process with SIGSTOP.
func (c *sandbox) stop() { _ = c.Signal(syscall.SIGSTOP) } // it may be dead

// resume continues the process with SIGCONT. A client that runs a request without a
// fence past its deadline is killed instead, and overdue is true.
func (c *sandbox) resume() (overdue bool) {
	c.mu.Lock()
	q := c.current
	c.mu.Unlock()
	if q != nil && q.Promise.unfenced() && !time.Now().Before(q.Deadline) {
		c.kill()
		return true
	}
	_ = c.Signal(syscall.SIGCONT) // it may be dead
	return false
}

// serveHTTP sends a request through the middleware of lambdahttp.
func serveHTTP(ctx context.Context, guard *idempotent.Guard, q request, handle func(context.Context) (result, error)) answer {
	guarded := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
		o.Scope, o.Operation = lambdahttp.SingleTenant, func(*lambdahttp.Request) string { return operations[overHTTP] }
		if q.Mute {
			o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { hang(); return "", nil }
		}
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, err := handle(r.Context())
		if err != nil {
			lambdahttp.SetError(r.Context(), err)
			return
		}
		response := responseOf(res)
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.Status)
		_, _ = w.Write(response.Body) // it is buffered
	}))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", bytes.NewReader([]byte(`{"amount":4200}`)))
	r.Header.Set("Idempotency-Key", `"`+q.Key+`"`)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	guarded.ServeHTTP(w, r)
	return answerOfHTTP(q, w)
}

// responseOf returns the response with a result.
func responseOf(r result) lambdahttp.Response {
	body, _ := json.Marshal(r) // strings and bytes always encode
	return lambdahttp.Response{Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// problemClasses are the classes of the answers that lambdahttp gives instead of the
// handler's.
var problemClasses = map[string]string{
	lambdahttp.InProgress.String(): classInProgress, lambdahttp.OutcomeUnknown.String(): classUnresolved,
	lambdahttp.NoTimeLeft.String(): classNoTime, lambdahttp.StoreUnavailable.String(): classStore,
	lambdahttp.ReplayUnavailable.String(): classUnavailable, lambdahttp.KeyReused.String(): classMismatch,
}

func answerOfHTTP(q request, w *httptest.ResponseRecorder) answer {
	a := answer{Name: q.Name}
	if w.Code == http.StatusCreated {
		var r result
		_ = json.Unmarshal(w.Body.Bytes(), &r) // a damaged body is a damaged result
		a.Proof, a.Stored = r.Proof, w.Header().Get("Idempotency-Status") != "not-stored"
		switch {
		case !r.intact(q.Promise.key(q.Key).RecordID()):
			a.Class = classDamaged
		case w.Header().Get("Idempotent-Replayed") == "true":
			a.Class = classReplayed
		case a.Stored:
			a.Class = classDone
		default:
			a.Class = classUnkept
		}
		return a
	}
	var problem struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &problem) // the class of an answer without a code is classFailed
	a.Class, a.Detail = classFailed, fmt.Sprintf("%d %s", w.Code, w.Body)
	if class, ok := problemClasses[problem.Code]; ok {
		a.Class = class
	}
	return a
}

// serveBatch sends a request through lambdabatch, as a message that the queue has
// delivered twice in one batch.
func serveBatch(ctx context.Context, guard *idempotent.Guard, q request, handle func(context.Context) (result, error)) answer {
	type message struct{ Key string }
	batch := lambdabatch.SQS(guard, func(ctx context.Context, _ message) error {
		_, err := handle(ctx)
		return err
	}, func(o *lambdabatch.Options) {
		o.Operation, o.ID = operations[inBatches], lambdabatch.Field("/Key")
		o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return idempotent.Global, nil }
	})
	body, _ := json.Marshal(message{q.Key}) // a string always encodes
	event := events.SQSEvent{}
	for _, id := range []string{"first", "second"} {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: q.Name + " " + id, Body: string(body), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:orders",
			Attributes: map[string]string{"ApproximateReceiveCount": "1"},
		})
	}
	out, err := batch(ctx, event)
	switch failed := len(out.BatchItemFailures); {
	case err != nil:
		return answer{Name: q.Name, Class: classFailed, Detail: err.Error()}
	case failed == len(event.Records):
		return answer{Name: q.Name, Class: classFailed, Detail: "the batch reports both messages"}
	default: // one copy that is acknowledged acknowledges the work
		return answer{Name: q.Name, Class: classDone, Acknowledged: true}
	}
}
