// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
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
	Barrier  barrier // where the process stops
	Lawless  bool    // break the guard: see lawless
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
	if w.store, err = connect(w.stopsClient(dynamostore.NewClient(engine.Config(s.Endpoint))), s.Table, scanEvery); err != nil {
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
