package lambdahttp

import (
	"slices"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/canonical"
)

// The form in which a body went into a fingerprint. Two bodies of different
// form never have one fingerprint.
const (
	formJSON   = "json"   // canonical JSON: spelling does not matter
	formRaw    = "raw"    // the bytes of anything that is not called JSON
	formBroken = "broken" // the bytes of what is called JSON and has no single meaning
)

// fingerprint binds method, path, query and body to the key. The only error is
// a body that cannot be decoded.
//
// A body that is called JSON and is not goes on to the handler, which has its
// own 400 for it; it is bound by its bytes.
func (r *Request) fingerprint() (idempotent.Fingerprint, error) {
	body, err := r.Body()
	if err != nil {
		return idempotent.Fingerprint{}, err
	}
	form := formRaw
	if isJSON(r.contentType()) {
		form = formBroken
		if doc, err := canonical.JSON(body); err == nil {
			form, body = formJSON, doc
		}
	}
	return idempotent.FingerprintBytes([]byte(r.Method), []byte(r.Path), []byte(sortQuery(r.RawQuery)), []byte(form), body), nil
}

// isJSON reports whether a media type is JSON: application/json, or one with
// the suffix +json (RFC 6839, section 3.1).
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// sortQuery sorts the parameters of a query by name. Values of one name keep
// their order, because it may mean something.
func sortQuery(raw string) string {
	if !strings.Contains(raw, "&") {
		return raw
	}
	pairs := strings.Split(raw, "&")
	slices.SortStableFunc(pairs, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	return strings.Join(pairs, "&")
}
