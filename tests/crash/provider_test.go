package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"

	"github.com/once-lambda/once/idempotent"
)

// bank is the provider. It runs in the test's process, so that it survives.
var bank *provider

// providerURL is the provider's address, for pay.
var providerURL string

// provider counts the requests and the effects, by downstream key.
type provider struct {
	url string

	mu      sync.Mutex
	calls   map[string]int
	effects map[string]int
}

func newProvider() (*provider, func()) {
	p := &provider{calls: map[string]int{}, effects: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	p.url = server.URL
	return p, server.Close
}

// serve charges under a key. With dedupe, it charges a key only once.
func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("key")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[key]++
	if r.FormValue("dedupe") != "true" || p.effects[key] == 0 {
		p.effects[key]++
	}
	fmt.Fprint(w, result(key))
}

// result is the result of a charge under that key.
func result(key string) string { return "charged under " + key }

// count returns how often a charge was requested, and how often it was made:
// under the key of the handler, or of its step.
func (p *provider) count(key idempotent.Key) (calls, effects int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := key.RecordID()
	for _, k := range []string{id.DownstreamKey(), id.StepKey("charge")} {
		calls += p.calls[k]
		effects += p.effects[k]
	}
	return calls, effects
}

// resolve looks into the provider's books.
func (p *provider) resolve(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range []string{r.ID.DownstreamKey(), r.ID.StepKey("charge")} {
		if p.effects[k] > 0 {
			return idempotent.Resolved(result(k)), nil
		}
	}
	if r.Released {
		return idempotent.Later(0), nil // its client will send it again
	}
	return idempotent.ProvenNotExecuted(r.Token), nil
}

// pay makes the effect happen.
func pay(ctx context.Context, key string, dedupe bool) (string, error) {
	form := url.Values{"key": {key}, "dedupe": {fmt.Sprint(dedupe)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, providerURL+"?"+form.Encode(), nil)
	if err != nil {
		return "", idempotent.NotExecuted(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(body), err
}
