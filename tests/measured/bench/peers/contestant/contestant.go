// SPDX-License-Identifier: Apache-2.0

// Package contestant is the part that the contestants written in Go share: the
// handler that they guard, and the commands of the harness. See package peers.
package contestant

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
)

// Request is the request of every contestant. The handler's result has the named
// size, and the handler records so many steps.
type Request struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
	Size   string `json:"size"`
	Steps  int    `json:"steps"`
	Pad    string `json:"pad"` // for the size of the request
}

// Result is the result of the handler.
type Result struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Lines  []Line `json:"lines,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Line is a line of an order.
type Line struct {
	SKU      string `json:"sku"`
	Name     string `json:"name"`
	Quantity int    `json:"quantity"`
	Price    int    `json:"price"`
}

// ErrInProgress is wrapped by the error for a key that another request is using.
var ErrInProgress = errors.New("in progress")

// Guard is one contestant: it runs Handle once for each id.
type Guard interface {
	Do(context.Context, Request) (Result, error)
	// Batch takes a batch of messages and returns how many of them failed.
	Batch(context.Context, []Request) (failed int, err error)
}

// Config returns the SDK's default configuration, but without a log: the SDK
// reports each refused write, because DynamoDB Local sends no checksum with an
// error. DynamoDB does.
func Config() (aws.Config, error) {
	return config.LoadDefaultConfig(context.Background(), config.WithLogger(logging.Nop{}))
}

// timeout is the time limit of a request unless the command sets one.
const timeout = 30 * time.Second

var (
	results = map[string]Result{}
	runs    atomic.Int64
	during  func(context.Context, Request) error // what the handler does next, if not nil
	lines   = bufio.NewScanner(os.Stdin)
)

// Handle is the handler that every contestant guards.
func Handle(ctx context.Context, r Request) (Result, error) {
	runs.Add(1)
	if f := during; f != nil {
		if err := f(ctx, r); err != nil {
			return Result{}, err
		}
	}
	return results[r.Size], nil
}

// command is a line from the harness: a work with the number of its operations,
// or one request.
type command struct {
	Work   string `json:"work"`
	N      int    `json:"n"`
	Body   int    `json:"body"`   // the size of a request, in bytes
	Result string `json:"result"` // the size of its result
	Flight int    `json:"flight"` // operations at the same time
	Steps  int    `json:"steps"`

	Request *Request `json:"request"`
	Mode    string   `json:"mode"`    // what its handler does: "" returns, "fail", or "wait" for a line
	Timeout int      `json:"timeout"` // in milliseconds
	Note    string   `json:"note"`    // added to the result
}

// Main loads the results that the handler returns, reports that g is ready, and
// obeys commands from standard input until it ends.
func Main(g Guard) {
	for _, size := range []string{"small", "1KB", "20KB", "300KB", "600KB"} {
		data, err := os.ReadFile(filepath.Join(os.Getenv("RESULTS"), size+".json"))
		if err != nil {
			break // only a start is measured
		}
		var r Result
		must(json.Unmarshal(data, &r))
		results[size] = r
	}
	answer(map[string]bool{"ready": true})
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c command
		must(json.Unmarshal(lines.Bytes(), &c))
		if c.Request != nil {
			answer(one(g, c))
		} else {
			answer(work(g, c))
		}
	}
	must(lines.Err())
}

// took is the cost of a work.
type took struct {
	Wall int64 `json:"wall"` // in nanoseconds
	CPU  int64 `json:"cpu"`
}

// measure returns the cost of f.
func measure(f func()) took {
	cpu, began := processorTime(), time.Now()
	f()
	return took{time.Since(began).Nanoseconds(), processorTime() - cpu}
}

func processorTime() int64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}

// work does one of the works n times.
func work(g Guard, c command) (t took) {
	runs.Store(0)
	fresh := func() Request {
		r := Request{ID: rand.Text(), Amount: 4200, Size: c.Result, Steps: c.Steps}
		r.Pad = strings.Repeat("x", max(0, c.Body-emptySize))
		return r
	}
	wantRuns := int64(c.N)
	switch c.Work {
	case "first":
		t = measure(func() { flight(c, func() { do(g, fresh()) }) })
	case "replay":
		r := fresh()
		do(g, r)
		t = measure(func() { flight(c, func() { do(g, r) }) })
		wantRuns = 1
	case "in-progress":
		during = func(_ context.Context, r Request) error {
			t = measure(func() {
				for range c.N {
					if _, err := ask(g, r, timeout); !errors.Is(err, ErrInProgress) {
						log.Fatalf("a request in progress was answered with the error %v", err)
					}
				}
			})
			return nil
		}
		do(g, fresh())
		during, wantRuns = nil, 1
	case "64-callers":
		t = measure(func() {
			for range c.N {
				r := fresh()
				var all sync.WaitGroup
				for range 64 {
					all.Go(func() {
						if _, err := ask(g, r, timeout); err != nil && !errors.Is(err, ErrInProgress) {
							log.Fatal(err)
						}
					})
				}
				all.Wait()
			}
		})
	case "batch-10":
		wantRuns *= 10
		t = measure(func() {
			for range c.N {
				batch := make([]Request, 10)
				for i := range batch {
					batch[i] = fresh()
				}
				if failed, err := g.Batch(context.Background(), batch); failed != 0 || err != nil {
					log.Fatalf("%d messages failed: %v", failed, err)
				}
			}
		})
	default:
		log.Fatalf("unknown work %q", c.Work)
	}
	if n := runs.Load(); n != wantRuns {
		log.Fatalf("%s: the handler ran %d times, want %d", c.Work, n, wantRuns)
	}
	return t
}

// emptySize is the size of a request without padding, in bytes of JSON.
const emptySize = len(`{"id":"","amount":4200,"size":"small","steps":0,"pad":""}`) + 26

// flight does an operation N times, some of them at the same time.
func flight(c command, op func()) {
	if c.Flight == 1 {
		for range c.N {
			op()
		}
		return
	}
	var all sync.WaitGroup
	for i := range c.Flight {
		all.Go(func() {
			for range (c.N + c.Flight - 1 - i) / c.Flight {
				op()
			}
		})
	}
	all.Wait()
}

// do makes a request that must be answered with the result.
func do(g Guard, r Request) {
	got, err := ask(g, r, timeout)
	if want := results[r.Size]; err != nil || got.ID != want.ID || len(got.Lines) != len(want.Lines) {
		log.Fatalf("got the result %q with %d lines and error %v", got.ID, len(got.Lines), err)
	}
}

func ask(g Guard, r Request, limit time.Duration) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return g.Do(ctx, r)
}

// outcome is the answer to one request.
type outcome struct {
	Runs  int64  `json:"runs"` // of the handler, for this request
	Note  string `json:"note"` // of the result
	Error string `json:"error,omitempty"`
}

// one makes one request.
func one(g Guard, c command) outcome {
	runs.Store(0)
	during = func(context.Context, Request) error {
		switch c.Mode {
		case "fail":
			return errors.New("the handler failed after its effect")
		case "wait":
			answer(map[string]bool{"entered": true})
			lines.Scan()
		}
		return nil
	}
	kept := results[c.Request.Size]
	noted := kept
	noted.Note = c.Note
	results[c.Request.Size] = noted
	limit := timeout
	if c.Timeout > 0 {
		limit = time.Duration(c.Timeout) * time.Millisecond
	}
	got, err := ask(g, *c.Request, limit)
	during = nil
	results[c.Request.Size] = kept
	out := outcome{Runs: runs.Load(), Note: got.Note}
	if err != nil {
		out.Error = err.Error()
		if errors.Is(err, ErrInProgress) {
			out.Error = "in progress"
		}
	}
	return out
}

func answer(v any) {
	line, err := json.Marshal(v)
	must(err)
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
