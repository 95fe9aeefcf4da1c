// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
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
	all, judged := slices.Concat(claims, acrossRegions), map[string]map[verdict]int{}
	for _, r := range rows {
		t.Run(r.Claim+"/"+r.Why, func(t *testing.T) {
			i := slices.IndexFunc(all, func(c claim) bool { return c.name == r.Claim })
			if i < 0 {
				t.Fatal("no claim has this name")
			}
			seen, v, err := all[i].rejudge(r.Answers)
			if err != nil || v != r.Verdict || seen == "" {
				t.Errorf("got %q, %q, %v; want %q", v, seen, err, r.Verdict)
			}
		})
		if judged[r.Claim] == nil {
			judged[r.Claim] = map[verdict]int{}
		}
		judged[r.Claim][r.Verdict]++
	}
	for _, c := range all {
		if judged[c.name][holds] == 0 || judged[c.name][fails] == 0 {
			t.Errorf("%s: %v, want right and wrong answers", c.name, judged[c.name])
		}
		if seen, v, err := c.rejudge([]byte("null")); v == holds {
			t.Errorf("%s is true without any answer: %q, %v", c.name, seen, err)
		}
	}
}

// A denial by a policy and a low quota are not judged, and neither is any other
// failure to get an answer.
func TestWithoutAnswers(t *testing.T) {
	for code, want := range map[string]string{
		"AccessDeniedException": "denied by a policy: why", "AccessDenied": "denied by a policy: why",
		"TooManyRequestsException": "a quota is too low: why", "InternalServerError": "api error InternalServerError: why",
	} {
		c := of(claim{name: "c"}, func(context.Context, *world) (int, error) {
			return 0, errors.Join(&smithy.GenericAPIError{Code: code, Message: "why"})
		}, func(int) (string, verdict) { return "judged", fails })
		rows := judgeAll(t.Context(), &world{log: t.Output()}, []claim{c})
		if rows[0].Verdict != notJudged || rows[0].Seen != want {
			t.Errorf("%s: got %+v, want %q", code, rows[0], want)
		}
		if err := (report{Rows: rows}).err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the run ended with %v", code, err)
		}
	}
}

// The number of the account is not in what people publish.
func TestReportIsMasked(t *testing.T) {
	file, out := filepath.Join(t.TempDir(), "r.json"), new(strings.Builder)
	r := report{account: "123456789012", Rows: []row{{Claim: "c", Verdict: fails, Seen: "arn:aws:iam::123456789012:role/r", Answers: "123456789012"}}}
	if err := errors.Join(r.print(out), r.write(file, out)); err != nil {
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

// A loop stops before it spends more than the estimate.
func TestBudget(t *testing.T) {
	b := budget{limit: 100}
	for range 10 {
		if err := b.spend(10); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.spend(1); err == nil {
		t.Error("the budget allows a unit too many")
	}
}

var update = flag.Bool("update", false, "write the generated parts of docs/reports/aws.md")

// The report has the claims and the price of the program, and the commands of
// docs/deploy.md are valid.
func TestPage(t *testing.T) {
	page := filepath.Join(engine.Root(), "docs", "reports", "aws.md")
	var table strings.Builder
	table.WriteString("| claim | expected | compared with | on LocalStack |\n| --- | --- | --- | --- |\n")
	for _, c := range slices.Concat(claims, acrossRegions) {
		local := onlyOnAWS
		if c.local {
			local = "judged"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", c.name, c.expected, c.source, local)
	}
	kit.Part(t, page, "claims", table.String(), *update)
	var price strings.Builder
	price.WriteString("| at most | amount | dollars |\n| --- | --: | --: |\n")
	all := estimate(true)
	for _, c := range all {
		fmt.Fprintf(&price, "| %s | %g | %.4f |\n", c.what, c.amount, c.amount*c.price)
	}
	fmt.Fprintf(&price, "| with `--kms` | | %.4f |\n| without | | %.4f |\n", sum(all), sum(estimate(false)))
	kit.Part(t, page, "price", price.String(), *update)
	if sum(all) > 1 {
		t.Errorf("a run costs $%.2f, more than a dollar", sum(all))
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
	printed, err := output(t.Context(), nil, engine.Root(), "make", "--no-print-directory", "verify-aws", "ARGS=policy --account 123456789012")
	if err != nil || !strings.Contains(string(printed), "arn:aws:iam::123456789012:role/once-verify-*") {
		t.Errorf("got %v: %s", err, printed)
	}
}
