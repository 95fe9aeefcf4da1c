// SPDX-License-Identifier: Apache-2.0

package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/internal/page"
)

// session decides who may ask the console. Any web page in the operator's browser can
// send requests to a port of this machine, which [page.Guard] refuses, and so can
// other programs of the machine. So all but the page needs the two secrets of the
// one session.
type session struct {
	host string // the address of the console, 127.0.0.1:PORT

	mu     sync.Mutex
	ticket secret // opens the session once; zero: used
	cookie secret // of the session; zero: not opened
	header secret // of the session
}

// secret is the hash of a random text, such that it can be compared in constant
// time.
type secret [sha256.Size]byte

// newSecret returns a random text of 128 bits or more, and its hash.
func newSecret() (text string, s secret) {
	text = rand.Text()
	return text, sha256.Sum256([]byte(text))
}

// is reports whether s is the hash of text. No known text has the zero hash.
func (s secret) is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(s[:], sum[:]) == 1
}

// newSession returns the session of the console at host, and the text of the ticket.
func newSession(host string) (s *session, ticket string) {
	s = &session{host: host}
	ticket, s.ticket = newSecret()
	return s, ticket
}

// cookieName returns the name of the cookie. Browsers do not separate the cookies
// of two ports, so that the name has the port.
func (s *session) cookieName() string {
	_, port, _ := strings.Cut(s.host, ":")
	return "once-console-" + port
}

// sessionHeader is the header with the second secret. The page keeps it in the
// storage of its own origin, which includes the port: another program that gets the
// cookie because it listens on another port of this machine does not get it.
const sessionHeader = "Once-Session"

// enter opens the session, if ticket is right and was not used before. It returns
// the two secrets.
func (s *session) enter(ticket string) (cookie, header string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ticket.is(ticket) {
		return "", "", false
	}
	s.ticket = secret{}
	cookie, s.cookie = newSecret()
	header, s.header = newSecret()
	return cookie, header, true
}

// known reports whether the request belongs to the session.
func (s *session) known(r *http.Request) bool {
	cookie, err := r.Cookie(s.cookieName())
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && s.cookie.is(cookie.Value) && s.header.is(r.Header.Get(sessionHeader))
}

// refuses returns why a request is refused, with its status, or "".
func (s *session) refuses(r *http.Request) (status int, why string) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	api := strings.HasPrefix(r.URL.Path, apiPath)
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !safe && r.Header.Get("Origin") == "":
		return http.StatusForbidden, "the request does not come from the page of the console"
	case !safe && kind != "application/json":
		return http.StatusUnsupportedMediaType, "want application/json"
	case api && r.URL.Path != sessionPath && !s.known(r):
		return http.StatusUnauthorized, "no session: open the address that once console printed"
	}
	return 0, ""
}

// Paths of the console.
const (
	apiPath     = "/api/"
	sessionPath = apiPath + "session"
)

// guard returns next behind the session.
func (s *session) guard(next http.Handler) http.Handler {
	return page.Secure(page.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, why := s.refuses(r); status != 0 {
			page.Reply(w, status, failure{Error: why})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, operate.MaxAnswer)
		next.ServeHTTP(w, r)
	}), s.host))
}

// open opens the session for the page that has the ticket.
func (s *session) open(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Ticket string `json:"ticket"`
	}
	if err := readJSON(r, &in); err != nil {
		fail(w, err)
		return
	}
	cookie, header, ok := s.enter(in.Ticket)
	if !ok {
		page.Reply(w, http.StatusUnauthorized, failure{Error: "this address was used before, or is not complete: run once console again"})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookieName(), Value: cookie, Path: apiPath, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	page.Reply(w, http.StatusOK, map[string]string{"session": header})
}

// answered returns the handler that answers with what f returns.
func answered(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		page.Reply(w, http.StatusOK, v)
	}
}

// failure is the answer about an error.
type failure struct {
	Error  string `json:"error"`
	Advice string `json:"advice,omitempty"`
}

// fail answers with an error. It writes nothing elsewhere: an error may contain
// what the operator entered.
func fail(w http.ResponseWriter, err error) {
	status := map[int]int{
		operate.ExitUsage: http.StatusBadRequest, operate.ExitNotFound: http.StatusNotFound, operate.ExitRefused: http.StatusConflict,
	}[operate.ExitCode(err)]
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		status = http.StatusRequestEntityTooLarge
	case status == 0:
		status = http.StatusBadGateway // the store failed
	}
	page.Reply(w, status, failure{onPage.Replace(err.Error()), onPage.Replace(operate.Advice(err, false))})
}

// onPage replaces the words of the command line, which texts share, by those of the
// page.
var onPage = strings.NewReplacer(
	"--reason is empty", "the reason is empty",
	"add --key and --scope (or --global)", "enter the client's key and its scope, too",
	"--scope, --global and --path need the client's key: add --key", "a scope or a path needs the client's key: enter it, too",
	"--global means no scope, but --scope is set", "clear the scope, or the mark that the operation has none",
	"--key needs the scope: add --scope, or --global if the operation has none", "the key needs its scope: enter it, or mark that the operation has none",
	"and --path if the key", "and the path if the key",
	" with --scan, or use the full id or the key", " by its reference, or enter the full id or the key",
	"; run once show again, then ask", "; open the record again, then ask",
	"; run once show again", "; open the record again",
	"; --result prints it", "; the record shows it",
	"store it anyway with --force", "store it anyway, see More options",
	`give the HTTP response: --status (and --header) with --completed, or "response" in a program's answer`, "settle this record by itself, with the status and the body of its response",
	`give the bytes of the encoded result: --completed @FILE, or "completed_base64" in a program's answer; or use --without-result`, "settle this record by itself, with a file of its encoded result, or without its result",
	"use --without-result or --not-executed, or give the result", "settle it without its result or as not executed, or give the result",
	"and run the command again", "and start the console again",
	"correct --table, --region or --profile; once table check lists the differences", "start the console again with another table, region or profile",
	": --instead-of, or once forget", ", open the record again: correct its outcome, or discard it",
	"correct it with InsteadOf (once resolve --instead-of), or discard it with Forget (once forget)", "open the record again and correct its outcome, or discard it",
	"correct it with CorrectedStep (once resolve --correct-step)", "correct the step",
	"; use the same evidence without InsteadOf", "; open the record again and settle it by evidence",
	"Check --region, --endpoint and the network", "Check the region, the endpoint and the network of the console",
	"Check --table, --region, --profile and --endpoint", "Check the table, the region, the profile and the endpoint of the console",
	", or use --no-index", "",
	"Use --profile for another identity", "Start the console again as another identity",
	"log in again, or use --profile", "log in again, and start the console again",
)

// readJSON reads the body of a request. The error says that it is malformed.
func readJSON(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if errors.As(err, new(*http.MaxBytesError)) {
		return fmt.Errorf("the request is larger than %s: %w", output.Size(operate.MaxAnswer), err)
	}
	if err == nil {
		err = operate.DecodeOne(data, v)
	}
	if err != nil {
		return operate.Usage("invalid request: %v", err)
	}
	return nil
}
