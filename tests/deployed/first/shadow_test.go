// SPDX-License-Identifier: Apache-2.0

package first

import (
	"context"
	"crypto/rand"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// modes are the variables of a function without a guard, in shadow mode, and enforcing.
var modes = map[string]map[string]string{
	"off":       {"MODE": "off", "GUARD": "off"},
	"shadow":    {"MODE": "shadow", "ONCE_SHADOW": "true"},
	"enforcing": {"MODE": "enforcing", "ONCE_SHADOW": "false"},
}

// payment is a request with a new key, and its repetition.
type payment struct {
	key   string
	modes [2]string // in which the two requests ran; "replay": the second did not run
}

// The function is switched under traffic, from no guard to shadow mode, to enforcing and
// back. The queries of docs/adopt.md name exactly the keys whose effect was repeated in
// shadow mode after a run that a guard has recorded, and no key has two effects whose first
// request ran while the guard enforced.
func TestShadowIsSwitchedUnderTraffic(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	effects, payments, log := map[string]int{}, []payment{}, []string{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line, err := io.ReadAll(r.Body)
		if err != nil {
			return // the switch has ended the environment
		}
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/log" {
			log = append(log, string(line))
			return
		}
		effects[r.Header.Get("Reference")]++
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(provider.Close)
	variables := func(mode string) map[string]string {
		env := map[string]string{"PROVIDER_URL": provider.URL}
		maps.Copy(env, modes[mode])
		return env
	}
	f := &charges{name: create(t, "watched", 15*time.Minute, variables("off"))}
	f.host = urlOf(t, f.name)

	traffic, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for traffic.Err() == nil {
				p := payment{key: rand.Text()}
				if !f.pay(t, &p, 0) || !f.pay(t, &p, 1) {
					continue // the switch has ended its environment
				}
				mu.Lock()
				payments = append(payments, p)
				mu.Unlock()
			}
		})
	}
	for _, mode := range []string{"off", "shadow", "enforcing", "shadow"} {
		env := variables(mode)
		env["ONCE_TABLE"] = records
		if _, err := functions.UpdateFunctionConfiguration(t.Context(), &lambda.UpdateFunctionConfigurationInput{
			FunctionName: &f.name, Environment: &types.Environment{Variables: env},
		}); err != nil {
			t.Error(err)
			break
		}
		mu.Lock()
		before := len(payments)
		mu.Unlock()
		kit.Eventually(t, "payments in mode "+mode, func() bool {
			mu.Lock()
			defer mu.Unlock()
			ran := 0
			for _, p := range payments[before:] {
				if p.modes[0] == mode {
					ran++
				}
			}
			return ran >= 10
		})
	}
	stop()
	clients.Wait()
	provider.Close() // waits for its handlers

	repeated := map[string]bool{}
	seen := map[string]int{}
	for _, p := range payments {
		seen[strings.Join(p.modes[:], ", then ")]++
		want := 2
		switch {
		case p.modes[0] == "enforcing" && p.modes[1] == "enforcing", p.modes[1] == "replay":
			want = 1
		case p.modes[0] != "off" && p.modes[1] == "shadow":
			repeated[hashOf(p.key)] = true
		}
		if effects[p.key] != want {
			t.Errorf("%s has %d effects, want %d", strings.Join(p.modes[:], ", then "), effects[p.key], want)
		}
	}
	t.Log(seen)
	named := hashes(kit.Insights(t, repeatedQuery(t), log))
	failed := hashes(kit.Insights(t, `filter event = "shadow_failed" | stats count(*) as requests by key_hash`, log)) // on a busy machine
	for hash := range named {
		if !repeated[hash] && !failed[hash] {
			t.Errorf("the query names %s, which was not repeated after a run that a guard has recorded", hash)
		}
	}
	for hash := range repeated {
		if !named[hash] && !failed[hash] {
			t.Errorf("the query does not name %s, which was repeated", hash)
		}
	}
}

var aHash = regexp.MustCompile(`key_hash=(\S+)`)

// hashes returns the key hashes in rows of a query.
func hashes(rows []string) map[string]bool {
	all := map[string]bool{}
	for _, row := range rows {
		all[aHash.FindStringSubmatch(row)[1]] = true
	}
	return all
}

func hashOf(key string) string {
	return idempotent.Key{Operation: "pay", Scope: idempotent.Global, ID: key}.RecordID().KeyHash()
}

// pay sends one of the two requests of p, and reports whether the function answered it.
func (f *charges) pay(t *testing.T, p *payment, i int) bool {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+"/", http.NoBody)
	if err != nil {
		t.Error(err)
		return true
	}
	req.Host = f.host
	req.Header.Set("Idempotency-Key", strconv.Quote(p.key))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return true
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		return false
	}
	p.modes[i] = string(body)
	if resp.Header.Get("Idempotent-Replayed") == "true" {
		p.modes[i] = "replay"
	}
	return true
}

// urlOf gives a function a URL, and returns its host.
func urlOf(t *testing.T, name string) string {
	t.Helper()
	out, err := functions.CreateFunctionUrlConfig(t.Context(), &lambda.CreateFunctionUrlConfigInput{FunctionName: &name, AuthType: types.FunctionUrlAuthTypeNone})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(*out.FunctionUrl, "/")[2]
}

// repeatedQuery returns the query of docs/adopt.md for the keys whose effect was repeated.
func repeatedQuery(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "adopt.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := kit.Queries(string(page))
	i := slices.IndexFunc(all, func(q string) bool { return strings.Contains(q, "key_hash") })
	if i < 0 {
		t.Fatal("the page has no query that names keys")
	}
	return all[i]
}
