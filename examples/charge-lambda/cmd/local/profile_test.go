// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// profileCases has a key for each profile, in the spelling of its header, and
// the answers in which the profiles differ.
var profileCases = map[string]struct {
	key    string
	reused int    // another request with the key
	says   string // part of that answer
	onGET  int    // a GET with the key, of a missing charge
}{
	"ietf":   {`"8e03978e-40d5-43e8-bc93-6894a57f9324"`, http.StatusUnprocessableEntity, `"code":"key-reused"`, http.StatusNotFound},
	"stripe": {"8e03978e-40d5-43e8-bc93-6894a57f9324", http.StatusBadRequest, "idempotency_error", http.StatusNotFound},
	"uuid":   {"8e03978e-40d5-43e8-bc93-6894a57f9324", http.StatusUnprocessableEntity, `"code":"key-reused"`, http.StatusBadRequest},
}

// The example under each profile: the printed commands work, and the answers
// are those of the profile.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for profile, want := range profileCases {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			s := start(t, env("DATA", t.TempDir(), "PROFILE", profile))
			if !strings.Contains(s.hints, "profile: "+profile+"\n") || !strings.Contains(s.hints, "-H 'Idempotency-Key: "+want.key+"'") {
				t.Errorf("the hints are\n%s", s.hints)
			}
			send := func(method, path, body string) (*http.Response, string) {
				r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Idempotency-Key", want.key)
				return do(t, r)
			}
			if resp, body := send("POST", "/charges", aCharge); resp.StatusCode != http.StatusCreated {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
			if resp, body := send("POST", "/charges", aCharge); resp.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("got %d %s, want a replay", resp.StatusCode, body)
			}
			if resp, body := send("POST", "/charges", strings.Replace(aCharge, "4200", "1", 1)); resp.StatusCode != want.reused || !strings.Contains(body, want.says) {
				t.Errorf("another request with the key: %d %s", resp.StatusCode, body)
			}
			if resp, body := send("GET", "/charges/ch_none", ""); resp.StatusCode != want.onGET {
				t.Errorf("a GET with the key: %d %s", resp.StatusCode, body)
			}
			// The operator's endpoint finds the record by the key alone.
			if resp, body := post(t, s.url+"/admin/resolve", "", `{"idempotency_key":"`+strings.Trim(want.key, `"`)+`"}`); resp.StatusCode != http.StatusOK {
				t.Errorf("resolving the key: %d %s", resp.StatusCode, body)
			}
			// Errors of the function itself have the format of the profile.
			resp, body := send("POST", "/charges", `{"amount":0}`)
			var answer struct {
				Error struct{ Type, Code, Message string }
				Code  string
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("got %d %s (%v)", resp.StatusCode, body, err)
			}
			if code := answer.Code + answer.Error.Code; code != "invalid_charge" || (profile == "stripe") != (answer.Error.Type == "invalid_request_error") {
				t.Errorf("got %s", body)
			}
		})
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	for profile, want := range profileCases {
		printed := func(args ...string) string {
			t.Helper()
			var out strings.Builder
			if err := command(t.Context(), args, env("PROFILE", profile), &out, io.Discard); err != nil {
				t.Errorf("%s %v: %v", profile, args, err)
			}
			return out.String()
		}
		if page := printed("policy"); !strings.HasPrefix(page, "# Idempotency keys\n") || !strings.Contains(page, want.says) {
			t.Errorf("%s: the page is\n%s", profile, page)
		}
		var document struct{ OpenAPI string }
		if text := printed("policy", "openapi"); json.Unmarshal([]byte(text), &document) != nil || document.OpenAPI != "3.1.0" {
			t.Errorf("%s: the document is\n%s", profile, text)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"polic"}, {"policy", "yaml"}, {"policy", "openapi", "more"}, {"--help"}, {""}} {
		var out strings.Builder
		if err := command(t.Context(), args, env(), &out, io.Discard); err == nil || !strings.Contains(err.Error(), `"policy openapi"`) || out.Len() > 0 {
			t.Errorf("%q: got error %v after %q", args, err, &out)
		}
	}
	if err := command(t.Context(), []string{"policy"}, env("PROFILE", "rest"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "ietf, stripe or uuid") {
		t.Errorf("got error %v", err)
	}
	// Without arguments it serves, or returns an error with the reason.
	if err := command(t.Context(), nil, env("PORT", "http"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "PORT") {
		t.Errorf("got error %v", err)
	}
}
