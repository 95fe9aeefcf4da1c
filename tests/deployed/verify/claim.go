// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/once-lambda/once/internal/kit/engine"
)

// verdict is the result of a claim.
type verdict string

const (
	holds     verdict = "true"
	fails     verdict = "false"
	notJudged verdict = "not judged" // a policy or a quota of the account prevented it
	onlyOnAWS verdict = "only on AWS"
)

// when returns whether a claim holds.
func when(ok bool) verdict {
	if ok {
		return holds
	}
	return fails
}

// claim is one promise that is checked.
type claim struct {
	name, expected, source string
	local                  bool // LocalStack behaves as AWS does
	replicas               bool // only with --replicas
	units                  int  // write units that it takes at most

	run     func(context.Context, *world) row
	rejudge func(recorded []byte) (seen string, v verdict, err error)
}

// row is the result of a claim, in the order of the table.
type row struct {
	Claim, Expected, Seen string
	Verdict               verdict
	MS                    int64
	Source                string
	Answers               any `json:",omitempty"`
}

// of completes a claim: collect gets the answers of AWS, and judge decides by them
// alone, so that recorded answers can be judged anywhere. LocalStack's answers to most
// claims prove nothing, but an error is one there, too.
func of[A any](c claim, collect func(context.Context, *world) (A, error), judge func(A) (seen string, v verdict)) claim {
	c.run = func(ctx context.Context, w *world) row {
		began := time.Now()
		answers, err := collect(ctx, w)
		r := row{Claim: c.name, Expected: c.expected, Source: c.source, Answers: answers, MS: time.Since(began).Milliseconds()}
		if err != nil {
			r.Seen, r.Verdict = strings.ReplaceAll(err.Error(), "\n", "; "), notJudged // for a row of the table
		} else if r.Seen, r.Verdict = judge(answers); w.Local && !c.local {
			r.Verdict = onlyOnAWS
		}
		return r
	}
	c.rejudge = func(recorded []byte) (seen string, v verdict, err error) {
		var answers A
		if err = json.Unmarshal(recorded, &answers); err == nil {
			seen, v = judge(answers)
		}
		return seen, v, err
	}
	return c
}

// judgeAll checks the claims side by side. LocalStack is slower than AWS by far, so
// there they take turns.
func judgeAll(ctx context.Context, w *world, all []claim) []row {
	rows := make([]row, len(all))
	var checks sync.WaitGroup
	var turn sync.Mutex
	for i, c := range all {
		checks.Go(func() {
			if w.Local {
				turn.Lock()
				defer turn.Unlock()
			}
			rows[i] = c.run(ctx, w)
			w.note("%s: %s", c.name, rows[i].Verdict)
		})
	}
	checks.Wait()
	return rows
}

// reports is the folder of reports, and of the function.
const reports = ".cache/verify"

// report is what a run writes as JSON.
type report struct {
	ID, Region, Date, Commit, SDK string
	LocalStack                    bool
	Rows                          []row

	account string // which is not published
}

// report describes a run.
func (w *world) report(rows []row) report {
	commit, _ := engine.Output(exec.Command("git", "-C", engine.Root(), "describe", "--always", "--dirty", "--abbrev=40"))
	return report{
		ID: w.ID, Region: w.Region, Date: time.Now().UTC().Format(time.RFC3339), Commit: commit,
		SDK: "aws-sdk-go-v2 " + aws.SDKVersion, LocalStack: w.Local, Rows: rows, account: w.Account,
	}
}

// publish prints the table, and writes the report to a file.
func (r report) publish(out io.Writer, file string) error {
	file = cmp.Or(file, filepath.Join(engine.Root(), reports, r.ID+".json"))
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLAIM\tVERDICT\tEXPECTED\tSEEN\tms\tSOURCE")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", row.Claim, row.Verdict, row.Expected, row.Seen, row.MS, row.Source)
	}
	table.Flush() // writes to memory
	fmt.Fprintf(&text, "report: %s\n", file)
	if _, err := out.Write(r.masked(text.Bytes())); err != nil {
		return err
	}
	written, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(r.masked(written), '\n'), 0o644)
}

// masked returns text without the number of the account, which denials contain.
func (r report) masked(text []byte) []byte {
	return bytes.ReplaceAll(text, []byte(r.account), []byte("ACCOUNT"))
}

// err reports whether a claim is false, or was not judged.
func (r report) err() (err error) {
	for _, row := range r.Rows {
		if row.Verdict == fails || row.Verdict == notJudged {
			err = errors.Join(err, fmt.Errorf("%s is %s: %s", row.Claim, row.Verdict, row.Seen))
		}
	}
	return err
}
