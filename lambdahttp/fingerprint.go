// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"slices"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/jsonpointer"
	"github.com/once-lambda/once/internal/sfv"
)

// FingerprintRule determines which requests with one key are the same request.
// Method and path are always compared; the rule adds the rest. The path is
// compared without the stage and base path of API Gateway, and in any
// percent-encoding.
type FingerprintRule struct {
	// Of returns what else is compared, as parts: requests with equal parts are
	// the same. A [*BodyError] refuses the request with 400; any other error is
	// returned to Lambda unchanged. Of must be safe for concurrent use.
	Of func(*Request) (parts [][]byte, err error)
	// Description describes to clients what is compared. Default: "the method,
	// the path, and what the operation depends on".
	Description string

	digest bool // Of requires a Content-Digest header
}

// WholeRequest compares query and body by their meaning. The order of query
// parameters of different names does not matter, and a body whose Content-Type
// is JSON is compared in canonical form (see [idempotent.FingerprintJSON]). All
// other bodies are compared byte for byte. The default.
var WholeRequest = FingerprintRule{
	Of: func(r *Request) ([][]byte, error) {
		form, body, err := r.content()
		return [][]byte{sortedQuery(r), []byte(form), body}, err
	},
	Description: "the method, the path, the query in any order of its names, and the body: JSON by its meaning, anything else byte for byte",
}

// RawBody compares the query and the bytes of the body as they were sent. It
// costs less than [WholeRequest]. A retry with the same JSON in another
// spelling is refused.
var RawBody = FingerprintRule{
	Of: func(r *Request) ([][]byte, error) {
		body, err := r.Body()
		if err != nil {
			return nil, err
		}
		return [][]byte{sortedQuery(r), []byte(formRaw), body}, nil
	},
	Description: "the method, the path, the query in any order of its names, and the bytes of the body",
}

// Fields compares the query and some values of a JSON body, each named by a
// JSON Pointer (RFC 6901): Fields("/amount", "/card/number"). All other values
// may differ between two requests with one key, so name everything that the
// effect depends on. A missing value differs from every other, including null.
// If the body is not JSON, all its bytes are compared.
//
// Fields panics if it has no pointers or a pointer is invalid.
func Fields(pointers ...string) FingerprintRule {
	if len(pointers) == 0 {
		panic(`lambdahttp: Fields: no JSON Pointer; give at least one, for example "/amount"`)
	}
	paths := make([]jsonpointer.Pointer, len(pointers))
	for i, p := range pointers {
		path, err := jsonpointer.Parse(p)
		if err != nil {
			panic(fmt.Sprintf("lambdahttp: Fields: invalid JSON Pointer %q: %v", p, err))
		}
		paths[i] = path
	}
	return FingerprintRule{
		Of: func(r *Request) ([][]byte, error) {
			form, body, err := r.content()
			parts := [][]byte{sortedQuery(r), []byte(form), body}
			if err != nil || form != formJSON {
				return parts, err
			}
			parts[1], parts[2] = []byte(formFields), nil
			for i, path := range paths {
				parts = append(parts, []byte(pointers[i]))
				if value, ok := path.Lookup(body); ok {
					parts = append(parts, []byte("="), value)
				} else {
					parts = append(parts, []byte("-"), nil)
				}
			}
			return parts, nil
		},
		Description: "the method, the path, the query in any order of its names, and these values of the body: " + strings.Join(pointers, ", "),
	}
}

// VerifiedDigest is [RawBody] for clients that send a Content-Digest header
// (RFC 9530). The header must contain at least one sha-256 or sha-512 digest,
// and the body must match all of them. Otherwise the request is refused with
// 400.
var VerifiedDigest = FingerprintRule{
	Of: func(r *Request) ([][]byte, error) {
		body, err := r.Body()
		if err != nil {
			return nil, err
		}
		if err := verifyDigest(r.Header("Content-Digest"), body); err != nil {
			return nil, err
		}
		return RawBody.Of(r)
	},
	Description: RawBody.Description + ", which must match the Content-Digest header (RFC 9530, sha-256 or sha-512)",
	digest:      true,
}

// defaultFingerprint describes a rule that has no description.
const defaultFingerprint = "the method, the path, and what the operation depends on"

// fingerprint returns the request's fingerprint under the rule.
func (r *Request) fingerprint(rule FingerprintRule) (idempotent.Fingerprint, error) {
	parts, err := rule.Of(r)
	if err != nil {
		return idempotent.Fingerprint{}, err
	}
	return idempotent.FingerprintBytes(append([][]byte{[]byte(r.Method), []byte(r.resource)}, parts...)...), nil
}

// content returns the body in the form in which it is compared.
//
// A body that is called JSON but is invalid is passed to the handler, which has
// its own 400 for it; its bytes are compared.
func (r *Request) content() (form string, body []byte, err error) {
	if body, err = r.Body(); err != nil {
		return "", nil, err
	}
	if !isJSON(r.contentType()) {
		return formRaw, body, nil
	}
	doc, err := canonical.JSON(body)
	if err != nil {
		return formBroken, body, nil
	}
	return formJSON, doc, nil
}

// The form in which a body is included in a fingerprint. Two bodies of
// different forms never have the same fingerprint.
const (
	formJSON   = "json"   // canonical JSON: spelling does not matter
	formFields = "fields" // values of canonical JSON
	formRaw    = "raw"    // the bytes of a body whose Content-Type is not JSON
	formBroken = "broken" // the bytes of a body whose Content-Type is JSON, but which is invalid or ambiguous
)

// isJSON reports whether a media type is JSON: application/json, or one with
// the suffix +json (RFC 6839, section 3.1).
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func sortedQuery(r *Request) []byte { return []byte(sortQuery(r.RawQuery)) }

// sortQuery sorts the parameters of a query by name. Values of one name stay in
// their order, because the order may matter.
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

var (
	errNoDigest     = &BodyError{digest: true, Detail: "no sha-256 or sha-512 digest"}
	errDigestSyntax = &BodyError{digest: true, Detail: "the header is not a list of digests like sha-256=:…:"}
	errDigest       = &BodyError{digest: true, Detail: "the body does not match the digest"}
)

// verifyDigest checks body against the lines of a Content-Digest header. It
// skips other algorithms: RFC 9530, section 5, calls them insecure or does not
// define them.
func verifyDigest(lines []string, body []byte) error {
	verified := false
	for _, line := range lines {
		digests, ok := sfv.ByteDictionary(line)
		if !ok {
			return errDigestSyntax
		}
		for _, d := range digests {
			var want []byte
			switch d.Key {
			case "sha-256":
				sum := sha256.Sum256(body)
				want = sum[:]
			case "sha-512":
				sum := sha512.Sum512(body)
				want = sum[:]
			default:
				continue
			}
			if !bytes.Equal(d.Value, want) {
				return errDigest
			}
			verified = true
		}
	}
	if !verified {
		return errNoDigest
	}
	return nil
}
