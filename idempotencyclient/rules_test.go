// SPDX-License-Identifier: Apache-2.0

package idempotencyclient_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// unanswered are the rows of the table that are no statuses.
var unanswered = map[string]answer{
	"no connection":                          fails(&net.OpError{Op: "dial", Err: errors.New("refused")}),
	"the connection ends without a response": fails(io.EOF),
	"the response breaks off":                breaksOff(`{"id`),
	"no response in time":                    hangs,
	"an invalid certificate":                 fails(&tls.CertificateVerificationError{Err: errors.New("expired")}),
}

// Each row of the table in docs/idempotencyclient.md is what the client does: it is
// the specification for clients in other languages.
func TestRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/idempotencyclient.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n| answer | code or type | header | the client |\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	played := 0
	for _, row := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(strings.Trim(row, "| "), "|")
		if len(cells) != 4 {
			t.Fatalf("a row of %d cells: %s", len(cells), row)
		}
		header, does := strings.Trim(cells[2], " `"), strings.TrimSpace(cells[3])
		codes := regexp.MustCompile("`[^`]+`").FindAllString(cells[1], -1)
		if len(codes) == 0 {
			codes = []string{""}
		}
		for answers := range strings.SplitSeq(cells[0], ", ") {
			for _, code := range codes {
				code := strings.Trim(code, "`")
				forms := []string{`{"code":%q}`, `{"error":{"type":"x","code":%q}}`}
				if strings.Contains(code, "#") {
					forms = []string{`{"type":%q}`}
				}
				for _, form := range forms {
					name := strings.TrimSpace(answers)
					play, ok := unanswered[name]
					if n, err := strconv.Atoi(name); err == nil {
						play, ok = status(n, fmt.Sprintf(form, code), header), true
					}
					if !ok {
						t.Fatalf("the answer %q cannot be played", name)
					}
					played++
					t.Run(strings.Join([]string{name, code, header, form[2:4]}, " "), func(t *testing.T) { follows(t, play, name, does) })
				}
			}
		}
	}
	if played < 80 {
		t.Errorf("only %d answers were found", played)
	}
}

// follows plays an answer to a client, and then 201.
func follows(t *testing.T, play answer, name, does string) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{play}}
		code, _, err := send(t, newTransport(t, s))
		s.sameKey(t)
		got := fmt.Sprintf("%d requests, %d", len(s.got), code)
		if err != nil {
			got = fmt.Sprintf("%d requests, %d attempts", len(s.got), failure(t, err).Attempts)
		}
		want := map[string]string{"repeats": "2 requests, 201", "returns": "1 requests, " + name, "stops": "1 requests, 1 attempts"}[does]
		if got != want {
			t.Errorf("got %s, %v; want %s, because the page says that the client %s", got, err, want, does)
		}
	})
}
