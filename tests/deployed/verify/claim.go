// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/aws/smithy-go"
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
	waits                  bool // it asks little of AWS
	kms                    bool // only with --kms

	run     func(context.Context, *world) (answers any, seen string, v verdict, err error)
	rejudge func(recorded []byte) (seen string, v verdict, err error)
}

// of completes a claim: collect gets the answers of AWS, and judge decides by them
// alone, so that recorded answers can be judged anywhere.
func of[A any](c claim, collect func(context.Context, *world) (A, error), judge func(A) (seen string, v verdict)) claim {
	c.run = func(ctx context.Context, w *world) (any, string, verdict, error) {
		answers, err := collect(ctx, w)
		if err != nil {
			return answers, "", notJudged, err
		}
		seen, v := judge(answers)
		return answers, seen, v, nil
	}
	c.rejudge = func(recorded []byte) (string, verdict, error) {
		var answers A
		if err := json.Unmarshal(recorded, &answers); err != nil {
			return "", "", err
		}
		seen, v := judge(answers)
		return seen, v, nil
	}
	return c
}

// row is the result of a claim, in the order of the table.
type row struct {
	Claim, Expected, Seen string
	Verdict               verdict
	MS                    int64
	Source                string
	Answers               any `json:",omitempty"`
}

// judgeAll checks the claims side by side. LocalStack is slower than AWS by far, so
// there all but those that mostly wait take turns.
func judgeAll(ctx context.Context, w *world, all []claim) []row {
	rows := make([]row, len(all))
	var checks sync.WaitGroup
	var turn sync.Mutex
	for i, c := range all {
		rows[i] = row{Claim: c.name, Expected: c.expected, Source: c.source, Verdict: onlyOnAWS, Seen: "-"}
		if w.Local && !c.local {
			continue
		}
		checks.Go(func() {
			if w.Local && !c.waits {
				turn.Lock()
				defer turn.Unlock()
			}
			began := time.Now()
			var err error
			r := &rows[i]
			r.Answers, r.Seen, r.Verdict, err = c.run(ctx, w)
			r.MS = time.Since(began).Milliseconds()
			if err != nil {
				r.Seen = reason(err)
			}
			w.note("%s: %s", c.name, r.Verdict)
		})
	}
	checks.Wait()
	return rows
}

// reason describes why a claim could not be judged.
func reason(err error) string {
	failure, _ := errors.AsType[smithy.APIError](err)
	text := strings.ReplaceAll(err.Error(), "\n", "; ") // for a row of the table
	switch {
	case failure == nil:
		return text
	case strings.Contains(failure.ErrorCode(), "AccessDenied"), strings.Contains(failure.ErrorCode(), "Unauthorized"):
		return "denied by a policy: " + failure.ErrorMessage()
	case slices.Contains([]string{"TooManyRequestsException", "LimitExceededException", "ServiceQuotaExceededException", "ThrottlingException"}, failure.ErrorCode()):
		return "a quota is too low: " + failure.ErrorMessage()
	}
	return text
}

// report is what a run writes as JSON.
type report struct {
	ID, Region, Date, Commit, SDK string
	LocalStack                    bool
	Rows                          []row

	account string // which is not published
}

// print prints the table.
func (r report) print(w io.Writer) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLAIM\tVERDICT\tEXPECTED\tSEEN\tms\tSOURCE")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", row.Claim, row.Verdict, row.Expected, row.Seen, row.MS, row.Source)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := w.Write(r.masked(text.Bytes()))
	return err
}

// masked returns text without the number of the account, which denials contain.
func (r report) masked(text []byte) []byte {
	return bytes.ReplaceAll(text, []byte(r.account), []byte("ACCOUNT"))
}

// err reports whether a claim is false, or was not judged.
func (r report) err() error {
	var all []string
	for _, row := range r.Rows {
		if row.Verdict == fails || row.Verdict == notJudged {
			all = append(all, fmt.Sprintf("%s is %s: %s", row.Claim, row.Verdict, row.Seen))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}
