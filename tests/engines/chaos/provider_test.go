// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	randv2 "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// What the harness answers about a record, unless it answers with the proof of
// the effect.
const (
	saidLater       = "later"
	saidNotExecuted = "not executed"
	saidExecuted    = "executed" // counted for a proof
)

// provider is the part of the harness that client processes call: the provider of
// the operation under Resume, and the evidence about the one under Reconcile. It
// is in the harness's process, which is never killed.
type provider struct {
	*httptest.Server
	ledger *ledger
	loss   float64 // how often the reply to a payment is lost

	mu       sync.Mutex
	random   *randv2.Rand
	dead     map[string]bool     // client processes that the harness saw die
	receipts map[string]string   // by downstream key
	effects  map[string][]string // receipts by record and step
	lost     int                 // replies
	said     map[string]int      // evidence
}

func newProvider(l *ledger, seed uint64, loss float64) *provider {
	b := &provider{
		ledger: l, loss: loss, random: randv2.New(randv2.NewPCG(seed, 1)),
		dead: map[string]bool{}, receipts: map[string]string{}, effects: map[string][]string{},
		said: map[string]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/pay", b.pay)
	mux.HandleFunc("/evidence", b.evidence)
	b.Server = httptest.NewServer(mux)
	return b
}

// pay acts once per downstream key. It counts by record and step, so that two
// downstream keys for one step are two effects.
func (b *provider) pay(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("key")
	b.mu.Lock()
	receipt, paid := b.receipts[key]
	if !paid {
		receipt = rand.Text()
		b.receipts[key] = receipt
		place := r.FormValue("record") + "/" + r.FormValue("step")
		b.effects[place] = append(b.effects[place], receipt)
	}
	lose := b.random.Float64() < b.loss
	if lose {
		b.lost++
	}
	b.mu.Unlock()
	if lose {
		panic(http.ErrAbortHandler) // the connection is closed without a reply
	}
	fmt.Fprint(w, receipt)
}

// evidence reports the result of the attempt that a request made on a record.
// The order matters: the ledger is read after the process is known to be dead.
func (b *provider) evidence(w http.ResponseWriter, r *http.Request) {
	client, _, _ := strings.Cut(r.FormValue("request"), "/")
	dead := b.sawDie(client)
	effects, err := b.ledger.of(r.FormValue("record"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	said, text := saidLater, saidLater
	switch {
	case len(effects) > 0:
		said, text = saidExecuted, effects[0].Proof
	case dead:
		said, text = saidNotExecuted, saidNotExecuted
	}
	b.mu.Lock()
	b.said[said]++
	b.mu.Unlock()
	fmt.Fprint(w, text)
}

// died records that a client process is dead: it was waited for.
func (b *provider) died(client string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead[client] = true
}

func (b *provider) sawDie(client string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dead[client]
}

// paid returns the receipts of the effects of a step of a record.
func (b *provider) paid(record, step string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.effects[record+"/"+step]...)
}

// between draws a duration from low to high.
func between(r *randv2.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// entry is one effect in the ledger.
type entry struct {
	Record  string
	Proof   string
	Request string
}

// ledger is a file of effects that all processes append to. Each effect is one
// write, which the kernel completes or does not begin: a dead process writes
// nothing more.
type ledger struct {
	file *os.File

	mu      sync.Mutex
	offset  int64
	entries map[string][]entry // by record, as far as the file was read
}

func openLedger(name string) (*ledger, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_SYNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledger{file: file, entries: map[string][]entry{}}, nil
}

// append makes an effect happen.
func (l *ledger) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// of returns the effects of a record that were written before the call.
func (l *ledger) of(record string) ([]entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.read()
	return slices.Clone(l.entries[record]), err
}

// all returns the effects that were written before the call, by record.
func (l *ledger) all() (map[string][]entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.read()
	return maps.Clone(l.entries), err
}

// read reads the lines that were written since the last call.
func (l *ledger) read() error {
	data, err := io.ReadAll(io.NewSectionReader(l.file, l.offset, 1<<40))
	if err != nil {
		return err
	}
	for {
		line, rest, complete := bytes.Cut(data, []byte("\n"))
		if !complete {
			return nil
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("chaos: the ledger has an unreadable line %q: %w", line, err)
		}
		l.entries[e.Record] = append(l.entries[e.Record], e)
		l.offset += int64(len(line)) + 1
		data = rest
	}
}
