package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/engine"
)

// settings is how a client process is configured, as JSON in its environment.
type settings struct {
	Endpoint string
	Table    string
	Orders   string
	Ledger   string
	Bank     string
	Lawless  bool // break the guard: see lawless
}

const envClient = "ONCE_CHAOS_CLIENT"

// client is the main function of a client process. It answers the requests on
// its standard input, one after the other, as a Lambda function does.
func client() error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(envClient)), &s); err != nil {
		return err
	}
	store, _, err := connect(engine.Config(s.Endpoint), s.Table)
	if err != nil {
		return err
	}
	books, err := openLedger(s.Ledger)
	if err != nil {
		return err
	}
	w := &world{store: store, guarded: store, orders: s.Orders, ledger: books, bank: s.Bank}
	if s.Lawless {
		w.guarded = lawless{store}
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
func (w *world) serve(q request) answer {
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), requestKey{}, q.Name), q.Deadline)
	defer cancel()
	if q.Promise == sweep {
		report, err := w.reconcile(ctx)
		if err != nil {
			return answer{Name: q.Name, Class: classStore, Detail: err.Error()}
		}
		return answer{Name: q.Name, Class: classDone, Detail: fmt.Sprint(report)}
	}
	out, err := w.do(ctx, q)
	return answerOf(q, out, err)
}

// lawless is a store that breaks the guard: each claim of a key succeeds,
// whatever record there is. It proves that the harness notices.
type lawless struct{ *dynamostore.Store }

// Insert hides the record that refused the claim.
func (l lawless) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	_, err := l.Store.Insert(ctx, r, now)
	return nil, err
}
