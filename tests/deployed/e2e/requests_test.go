// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/promised/published"
)

var profiles = []string{"ietf", "stripe", "uuid"}

func requestsDir() string {
	return filepath.Join(engine.Root(), "examples", "charge-lambda", "requests")
}

// unhurried leaves a busy machine the time for a second request while the provider works.
const unhurried = "SLOW=20s"

// F50: the curl script checks every answer itself, also that of a second request
// while the first one runs. It runs twice over one store, and fails for an API
// with another profile.
func TestCurlScript(t *testing.T) {
	t.Parallel()
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			p := start(t, t.TempDir(), "PROFILE="+profile, long, unhurried)
			run := func(told string) (string, error) {
				cmd := exec.Command("timeout", patience, filepath.Join(requestsDir(), "charge.sh"))
				cmd.Env = append(os.Environ(), "URL="+p.url, "PROFILE="+told)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			for range 2 {
				if out, err := run(profile); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			p.wantCharges(6)
			for _, other := range profiles {
				out, err := run(other)
				if wrong := other != profile; wrong != (err != nil) || wrong && !strings.Contains(out, "charge.sh: ") {
					t.Errorf("with PROFILE=%s, the script ended with %v\n%s", other, err, out)
				}
			}
			if out, err := run("rest"); err == nil || !strings.Contains(out, "ietf, stripe or uuid") {
				t.Errorf("got %v\n%s", err, out)
			}
			p.kill()
			if out, err := run(profile); err == nil || !strings.Contains(out, "no answer from") {
				t.Errorf("got %v\n%s", err, out)
			}
		})
	}
}

// entry is one request of a .http file and the expected answer in the file.
type entry struct {
	title  string
	answer []string // the status, and other parts of the answer
	text   string   // method, address, header lines, empty line, body
}

// readEntries reads a .http file, as editors do: "###" begins a request, "#" a
// comment, "@" a variable.
func readEntries(t *testing.T, file, url string) (entries []entry) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "{{url}}", url)
	if !strings.Contains(text, "\n@url = http://127.0.0.1:8080\n") {
		t.Errorf("%s does not contain the example's address", file)
	}
	for i, block := range strings.Split(text, "\n### ") {
		if i == 0 {
			continue // the file's own header
		}
		title, rest, _ := strings.Cut(block, "\n")
		comment, request, _ := strings.Cut(rest, "\n")
		answer, ok := strings.CutPrefix(comment, "# Answer: ")
		if !ok {
			t.Fatalf("%s: %s: the answer is missing", file, title)
		}
		entries = append(entries, entry{title, strings.Split(answer, ", "), strings.TrimSpace(request)})
	}
	return entries
}

// request returns the request, unchanged, and its body.
func (e entry) request(t *testing.T) (r *http.Request, body string) {
	t.Helper()
	head, body, _ := strings.Cut(e.text, "\n\n")
	line, headers, _ := strings.Cut(head, "\n")
	method, url, _ := strings.Cut(line, " ")
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(headers) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("%s: %q is not a header", e.title, line)
		}
		r.Header.Add(name, value)
	}
	return r, body
}

// G13: for each profile, `make run` starts the example as a newcomer does. The requests
// for editors, sent from top to bottom, get the answers in the files. The output of
// `policy` is a page, and a document that is valid OpenAPI and agrees with the requests.
func TestProfiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(requestsDir(), "*.http"))
	if err != nil || len(files) != len(profiles) {
		t.Fatalf("found %q (%v), want one for each of %q", files, err, profiles)
	}
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			printed := func(args ...string) string {
				cmd := exec.Command(binary, args...)
				cmd.Env = append(os.Environ(), "PROFILE="+profile)
				out, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				return string(out)
			}
			if page := printed("policy"); !strings.HasPrefix(page, "# Idempotency keys\n") || strings.Count(page, "\n| 4") < 8 {
				t.Errorf("the page is\n%s", page)
			}
			api, err := published.New([]byte(printed("policy", "openapi")))
			if err != nil {
				t.Fatal(err)
			}
			p := makeRun(t, profile)
			refused, accepted := 0, 0
			for _, e := range readEntries(t, filepath.Join(requestsDir(), profile+".http"), p.url) {
				q, body := e.request(t)
				r := exchange(q)
				if r.err != nil || strconv.Itoa(r.status) != e.answer[0] {
					t.Errorf("%s: got %d (%v) %s, want %s", e.title, r.status, r.err, r.body, e.answer[0])
				}
				replayed := false
				for _, part := range e.answer[1:] {
					if part == "Idempotent-Replayed" {
						replayed = true
					} else if !strings.Contains(r.body, part) {
						t.Errorf("%s: got %s, want %s in it", e.title, r.body, part)
					}
				}
				if (r.header.Get("Idempotent-Replayed") == "true") != replayed {
					t.Errorf("%s: got %v, want a replay: %t", e.title, r.header, replayed)
				}
				if q.Method != http.MethodPost {
					continue
				}
				switch err := api.Request(q.Header, body); {
				case err == nil:
					accepted++
				case strings.Contains(strings.Join(e.answer, " "), "key"):
					refused++
				default:
					t.Errorf("%s: the document refuses it: %v", e.title, err)
				}
			}
			if refused < 3 || accepted < 7 {
				t.Errorf("the document refuses %d requests and accepts %d", refused, accepted)
			}
			p.wantCharges(2)
			p.End(syscall.SIGTERM)
			if r := p.send("GET", "/provider/charges", "", ""); r.err == nil {
				t.Errorf("make was stopped, and the example still answers with %d", r.status)
			}
		})
	}
}

// makeRun starts the example with make.
func makeRun(t *testing.T, profile string) *process {
	t.Helper()
	cmd := exec.Command("make", "--no-print-directory", "run", "BIN="+t.TempDir())
	cmd.Dir = engine.Root()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		if cmd.Process != nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // make's own children, if make died before them
		}
	})
	return launch(t, cmd, t.TempDir(), "PROFILE="+profile)
}
