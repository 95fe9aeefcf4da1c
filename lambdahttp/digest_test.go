package lambdahttp_test

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/once-lambda/once/lambdahttp"
)

func sha256Of(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func sha512Of(body string) string {
	sum := sha512.Sum512([]byte(body))
	return "sha-512=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// contentDigests are headers for digestBody. The first two are those of RFC
// 9530, appendix D, for a document with a line feed at its end.
const digestBody = "{\"hello\": \"world\"}\n"

var contentDigests = []struct {
	name, header string
	detail       string // of the refusal; "": accepted
}{
	{"RFC 9530, sha-256", "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:", ""},
	{"RFC 9530, sha-512", "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:", ""},
	{"both", sha256Of(digestBody) + ", " + sha512Of(digestBody), ""},
	{"both, no space", sha256Of(digestBody) + "," + sha512Of(digestBody), ""},
	{"spaces around", "  " + sha256Of(digestBody) + " \t , \t" + sha512Of(digestBody) + "  ", ""},
	{"a parameter", sha256Of(digestBody) + ";a=1", ""},
	{"with an unknown algorithm", "md5=:AAAA:, " + sha256Of(digestBody), ""},
	{"one of two is wrong", sha256Of(digestBody) + ", " + sha512Of("x"), "the body does not match the digest"},
	{"the same name, one wrong", sha256Of("x") + ", " + sha256Of(digestBody), "the body does not match the digest"},
	{"wrong", sha256Of("x"), "the body does not match the digest"},
	{"too short", "sha-256=:AAAA:", "the body does not match the digest"},
	{"only an unknown algorithm", "md5=:AAAA:", "no sha-256 or sha-512 digest"},
	{"empty", "", "no sha-256 or sha-512 digest"},
	{"a name in capitals", strings.ToUpper(sha256Of(digestBody)[:7]) + sha256Of(digestBody)[7:], "the header is not a list of digests like sha-256=:…:"},
	{"no value", "sha-256", "the header is not a list of digests like sha-256=:…:"},
	{"a string", `sha-256="x"`, "the header is not a list of digests like sha-256=:…:"},
	{"an inner list", "sha-256=(1 2)", "the header is not a list of digests like sha-256=:…:"},
	{"broken base64", "sha-256=:%:", "the header is not a list of digests like sha-256=:…:"},
	{"unclosed", "sha-256=:AAAA", "the header is not a list of digests like sha-256=:…:"},
	{"trailing comma", sha256Of(digestBody) + ",", "the header is not a list of digests like sha-256=:…:"},
	{"trailing text", sha256Of(digestBody) + " x", "the header is not a list of digests like sha-256=:…:"},
	{"broken parameter", sha256Of(digestBody) + ";A", "the header is not a list of digests like sha-256=:…:"},
}

func TestContentDigest(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, c := range contentDigests {
			for _, in64 := range []bool{false, true} {
				w := newWorld(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest })
				a := w.post(charge(withHeader("content-digest", c.header), func(r *request) {
					if r.body = digestBody; in64 {
						r.body, r.base64 = base64.StdEncoding.EncodeToString([]byte(digestBody)), true
					}
				}))
				if c.detail == "" && a.status != 201 {
					t.Errorf("%s (base64 %t): got %d %s", c.name, in64, a.status, a.body)
				}
				if c.detail != "" && (a.status != 400 || !strings.Contains(a.body, "#invalid-digest") || !strings.Contains(a.body, c.detail) || w.runs+w.store.calls != 0) {
					t.Errorf("%s (base64 %t): got %d %s after %d runs, want 400: %s", c.name, in64, a.status, a.body, w.runs, c.detail)
				}
			}
		}
		w := newWorld(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest })
		if a := w.post(charge()); a.status != 400 || !strings.Contains(a.body, "no sha-256 or sha-512 digest") {
			t.Errorf("without the header: got %d %s", a.status, a.body)
		}
		if a := w.post(charge(withHeader("content-digest", "x"), func(r *request) { r.body, r.base64 = "%", true })); a.status != 400 || !strings.Contains(a.body, "#invalid-body") {
			t.Errorf("with a broken body: got %d %s", a.status, a.body)
		}
	})
}

// A retry may send another digest of the same body.
func TestContentDigestOfARetry(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest })
		send := func(body, digest string) reply {
			return w.post(charge(withBody(body), withHeader("content-digest", digest)))
		}
		send(`{"a":1}`, sha256Of(`{"a":1}`))
		if a := send(`{"a":1}`, sha512Of(`{"a":1}`)); a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("by another algorithm: got %d %s", a.status, a.body)
		}
		if a := send(`{"a": 1}`, sha256Of(`{"a": 1}`)); a.status != 422 || w.runs != 1 {
			t.Errorf("other bytes: got %d after %d runs, want 422", a.status, w.runs)
		}
	})
}

// A header that is accepted matches the body, whatever else it contains.
func FuzzContentDigest(f *testing.F) {
	for _, c := range contentDigests {
		f.Add(c.header, digestBody)
	}
	f.Fuzz(func(t *testing.T, header, body string) {
		if lambdahttp.VerifyDigest([]string{header}, []byte(body)) != nil {
			return
		}
		for _, want := range []string{sha256Of(body), sha512Of(body)} {
			// Padding and the pad bits before it are not checked.
			if strings.Contains(header, want[:len(want)-len("A==:")]) {
				return
			}
		}
		t.Errorf("%q was accepted for %q", header, body)
	})
}
