// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// Each claim is judged from recorded answers: right ones, and wrong ones in each way
// that the claim excludes. Those that are not of LocalStack are written by hand, in
// the form that the documentation of AWS gives.
func TestClaimsJudge(t *testing.T) {
	text, err := os.ReadFile("testdata/answers.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Claim, Why string
		Verdict    verdict
		Answers    json.RawMessage
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	judged := map[string]map[verdict]int{}
	for _, r := range rows {
		t.Run(r.Claim+"/"+r.Why, func(t *testing.T) {
			i := slices.IndexFunc(claims, func(c claim) bool { return c.name == r.Claim })
			if i < 0 {
				t.Fatal("no claim has this name")
			}
			seen, v, err := claims[i].rejudge(r.Answers)
			if err != nil || v != r.Verdict || seen == "" {
				t.Errorf("got %q, %q, %v; want %q", v, seen, err, r.Verdict)
			}
		})
		if judged[r.Claim] == nil {
			judged[r.Claim] = map[verdict]int{}
		}
		judged[r.Claim][r.Verdict]++
	}
	for _, c := range claims {
		if judged[c.name][holds] == 0 || judged[c.name][fails] == 0 {
			t.Errorf("%s: %v, want right and wrong answers", c.name, judged[c.name])
		}
		if seen, v, err := c.rejudge([]byte("null")); v == holds {
			t.Errorf("%s is true without any answer: %q, %v", c.name, seen, err)
		}
	}
}

// A denial by a policy, a low quota and any other failure to get an answer are not
// judged. The row has the reason.
func TestWithoutAnswers(t *testing.T) {
	c := of(claim{name: "c"}, func(context.Context, *world) (int, error) {
		return 0, errors.Join(&smithy.GenericAPIError{Code: "AccessDeniedException", Message: "why"}, errors.New("second line"))
	}, func(int) (string, verdict) { return "judged", fails })
	const want = "api error AccessDeniedException: why; second line"
	for _, local := range []bool{true, false} {
		rows := judgeAll(t.Context(), &world{shape: shape{Local: local}, log: t.Output()}, []claim{c})
		if rows[0].Verdict != notJudged || rows[0].Seen != want {
			t.Errorf("got %+v, want %q", rows[0], want)
		}
		if err := (report{Rows: rows}).err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the run ended with %v", err)
		}
	}
}

// The number of the account is not in what people publish.
func TestReportIsMasked(t *testing.T) {
	file, out := filepath.Join(t.TempDir(), "r.json"), new(strings.Builder)
	r := report{account: "123456789012", Rows: []row{{Claim: "c", Verdict: fails, Seen: "arn:aws:iam::123456789012:role/r", Answers: "123456789012"}}}
	if err := r.publish(out, file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if all := out.String() + string(text); strings.Contains(all, r.account) || strings.Count(all, "ACCOUNT") != 3 {
		t.Error(all)
	}
}

// The extension registers for the shutdown, and waits for it under the identifier that
// it got.
func TestExtension(t *testing.T) {
	asked := make(chan string, 2)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Lambda-Extension-Identifier", "id-1")
		asked <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Lambda-Extension-Name") + r.Header.Get("Lambda-Extension-Identifier")
	}))
	defer api.Close()
	cmd := exec.CommandContext(t.Context(), "sh", "extension.sh")
	cmd.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(api.URL, "http://"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for _, want := range []string{"POST /2020-01-01/extension/register verify", "GET /2020-01-01/extension/event/next id-1"} {
		if got := <-asked; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

var update = flag.Bool("update", false, "write the generated parts of docs/reports/aws.md")

// The report has the claims and the price of the program, and the commands of
// docs/deploy.md are valid.
func TestPage(t *testing.T) {
	page := filepath.Join(engine.Root(), "docs", "reports", "aws.md")
	var table strings.Builder
	table.WriteString("| claim | expected | compared with | on LocalStack |\n| --- | --- | --- | --- |\n")
	for _, c := range claims {
		local := "rehearsed"
		if c.local {
			local = "judged"
		}
		if c.units == 0 && c.name != "clocks" {
			t.Errorf("%s: the write units are not declared", c.name)
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", c.name, c.expected, c.source, local)
	}
	kit.Part(t, page, "claims", table.String(), *update)
	var price strings.Builder
	price.WriteString("| at most | amount | dollars |\n| --- | --: | --: |\n")
	all := estimate(claims)
	for _, c := range all {
		fmt.Fprintf(&price, "| %s | %g | %.4f |\n", c.what, c.amount, c.amount*c.price)
	}
	dollars := printCosts(io.Discard, all)
	fmt.Fprintf(&price, "| all claims | | %.4f |\n", dollars)
	kit.Part(t, page, "price", price.String(), *update)
	if dollars > 1 {
		t.Errorf("a run costs $%.2f, more than a dollar", dollars)
	}
	text, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`make verify-aws ARGS='([^']*)'`).FindAllStringSubmatch(string(text), -1)
	for _, c := range commands {
		if _, err := parse(strings.Fields(c[1])); err != nil {
			t.Errorf("%s: %v", c[0], err)
		}
	}
	if len(commands) < 4 {
		t.Errorf("docs/deploy.md has only %d commands", len(commands))
	}
}

// The target of the Makefile passes its arguments.
func TestMakefile(t *testing.T) {
	printed, err := engine.Output(exec.Command("make", "-C", engine.Root(), "--no-print-directory", "verify-aws", "ARGS=policy --account 123456789012"))
	if err != nil || !strings.Contains(printed, "arn:aws:iam::123456789012:role/once-verify-*") {
		t.Errorf("got %v: %s", err, printed)
	}
}
