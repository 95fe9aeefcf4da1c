// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"io"
	"mime"
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
	Of func(context.Context, *Request) (parts [][]byte, err error)
	// Description describes to clients what is compared. Default: "the method,
	// the path, and what the operation depends on".
	Description string

	digest bool // Of requires a Content-Digest header
}

// WholeRequest compares query and body by their meaning. The order of query
// parameters of different names does not matter. The body is compared together
// with its media type, without parameters:
//
//   - gzip and deflate are undone, up to 1 MB of compressed and 6 MB of
//     uncompressed data.
//   - A body whose Content-Type is JSON is compared in canonical form (see
//     [idempotent.FingerprintJSON]).
//   - A multipart body is compared by its parts, in their order, with their
//     header fields. The boundary does not matter.
//   - All other bodies, and those that are invalid or larger, are compared byte
//     for byte, together with their Content-Encoding. Forms are among them: the
//     order of their fields can have a meaning.
//
// The default of all profiles but [Webhook].
var WholeRequest = FingerprintRule{
	Of: func(_ context.Context, r *Request) ([][]byte, error) {
		c, err := r.content()
		return r.parts(c), err
	},
	Description: comparedQuery + ", and the body: JSON by its meaning, multipart by its parts, anything else byte for byte; gzip and deflate do not matter",
}

// RawBody compares the query, the media type and the bytes of the body as they
// were sent, with their Content-Encoding. It costs less than [WholeRequest]. A
// retry with the same JSON in another spelling, or with another boundary, is
// refused.
var RawBody = FingerprintRule{
	Of: func(_ context.Context, r *Request) ([][]byte, error) {
		c, err := r.rawContent()
		return r.parts(c), err
	},
	Description: comparedQuery + ", and the bytes of the body",
}

// Fields compares the query, the media type and some values of a JSON body, each
// named by a JSON Pointer (RFC 6901): Fields("/amount", "/card/number"). All
// other values may differ between two requests with one key, so name everything
// that the effect depends on. A missing value differs from every other,
// including null. A member whose name differs from that of a pointer in letter case only
// is refused with 400, because encoding/json would decode it as the named one. A body
// that is not JSON is compared as by [WholeRequest].
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
			panic(fmt.Sprintf("lambdahttp: Fields: invalid JSON Pointer %q: %v; use one such as %q", p, err, "/amount"))
		}
		paths[i] = path
	}
	names := jsonpointer.NamesIn(paths)
	return FingerprintRule{
		Of: func(_ context.Context, r *Request) ([][]byte, error) {
			c, err := r.content()
			if c.form != formJSON {
				return r.parts(c), err
			}
			if name, ok := names.Miscased(c.body); ok {
				return nil, &BodyError{Detail: miscased(name)}
			}
			doc := c.body
			c.body = nil
			for i, path := range paths {
				value, _ := path.Lookup(doc) // empty if it is missing, as no value is
				c.parts = append(c.parts, []byte(pointers[i]), value)
			}
			return r.parts(c), nil
		},
		Description: comparedQuery + ", and these values of the body: " + strings.Join(pointers, ", "),
	}
}

// miscased says that a name of the body equals name only if letter case is ignored.
func miscased(name string) string {
	return fmt.Sprintf("a member is named like %q in another letter case; write it %[1]q", name)
}

// VerifiedDigest is [RawBody] for clients that send a Content-Digest header
// (RFC 9530). The header must contain at least one sha-256 or sha-512 digest,
// and the body must match all of them. Otherwise the request is refused with
// 400.
var VerifiedDigest = FingerprintRule{
	Of: func(_ context.Context, r *Request) ([][]byte, error) {
		c, err := r.rawContent()
		if err != nil {
			return nil, err
		}
		return r.parts(c), verifyDigest(r.Header("Content-Digest"), c.body)
	},
	Description: RawBody.Description + ", which must match the Content-Digest header (RFC 9530, sha-256 or sha-512)",
	digest:      true,
}

// onlyKey compares nothing but method and path.
var onlyKey = FingerprintRule{
	Of:          func(context.Context, *Request) ([][]byte, error) { return nil, nil },
	Description: "nothing else: each request with the key is the same request",
}

// comparedQuery is what the rules of this package compare besides the body.
const comparedQuery = "the method, the path, the query in any order of its names, the media type"

// defaultFingerprint describes a rule that has no description.
const defaultFingerprint = "the method, the path, and what the operation depends on"

// fingerprint returns the request's fingerprint under the rule.
func (r *Request) fingerprint(ctx context.Context, rule FingerprintRule) (idempotent.Fingerprint, error) {
	parts, err := rule.Of(ctx, r)
	if err != nil {
		return idempotent.Fingerprint{}, err
	}
	return idempotent.FingerprintBytes(append([][]byte{[]byte(r.Method), []byte(r.resource)}, parts...)...), nil
}

// parts returns what the rules of this package compare: the query and c.
func (r *Request) parts(c content) [][]byte {
	return append([][]byte{[]byte(sortQuery(r.RawQuery)), []byte(c.media), []byte(c.coding), []byte(c.form), c.body}, c.parts...)
}

// sortQuery sorts the parameters of a query by name. Values of one name stay in
// their order, because the order may matter.
func sortQuery(raw string) string {
	pairs := strings.Split(raw, "&")
	slices.SortStableFunc(pairs, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	return strings.Join(pairs, "&")
}

var (
	errNoDigest     = &BodyError{situation: InvalidDigest, Detail: "no sha-256 or sha-512 digest"}
	errDigestSyntax = &BodyError{situation: InvalidDigest, Detail: "the header is not a list of digests like sha-256=:…:"}
	errDigest       = &BodyError{situation: InvalidDigest, Detail: "the body does not match the digest"}
)

// verifyDigest checks body against the lines of a Content-Digest header. It
// skips other algorithms: RFC 9530, section 5, calls them insecure or does not
// define them.
func verifyDigest(lines []string, body []byte) error {
	sums := map[string][]byte{} // of body, by the name of the algorithm; nil: skipped
	verified := false
	for _, line := range lines {
		digests, ok := sfv.ByteDictionary(line)
		if !ok {
			return errDigestSyntax
		}
		for _, d := range digests {
			want, known := sums[d.Key]
			if !known {
				want = digestOf(d.Key, body)
				sums[d.Key] = want
			}
			if want == nil {
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

// digestOf returns the digest of body, or nil for an algorithm that is skipped.
func digestOf(algorithm string, body []byte) []byte {
	switch algorithm {
	case "sha-256":
		sum := sha256.Sum256(body)
		return sum[:]
	case "sha-512":
		sum := sha512.Sum512(body)
		return sum[:]
	}
	return nil
}

// content is what of a body is compared. Two requests have the same content if
// and only if all fields are equal.
type content struct {
	media  string // media type without parameters, in lower case; empty if missing
	coding string // the Content-Encoding that was not undone
	form   string
	body   []byte
	parts  [][]byte
}

// The form of a content.
const (
	formRaw       = "raw"       // body is the bytes
	formJSON      = "json"      // body is canonical JSON, or parts are values of it: spelling does not matter
	formMultipart = "multipart" // parts are those of a multipart body: the boundary does not matter
)

// rawContent returns the bytes of the body as they were sent.
func (r *Request) rawContent() (c content, err error) {
	body, err := r.Body()
	return content{media: r.mediaType(), coding: r.coding(), form: formRaw, body: body}, err
}

// content returns the content of the body by its meaning: without a coding, and in
// the form of its media type. A body that is not what its headers say is passed to
// the handler, which has its own answer for it; its bytes are compared.
func (r *Request) content() (c content, err error) {
	media := r.mediaType()
	if r.document != nil && isJSON(media) {
		return content{media: media, form: formJSON, body: r.document}, nil
	}
	coding, body, err := r.uncoded()
	c = content{media: media, coding: coding, form: formRaw, body: body}
	switch {
	case coding != "" || strings.Contains(media, ","): // the last is several media types
	case isJSON(media):
		if doc, err := canonical.JSON(body); err == nil {
			c.form, c.body = formJSON, doc
		}
	case strings.HasPrefix(media, "multipart/"):
		if parts, ok := splitMultipart(body, r.boundary()); ok {
			c.form, c.body, c.parts = formMultipart, nil, parts
		}
	}
	return c, err
}

// mediaType returns the media type of the body in lower case, without parameters.
// If there is not exactly one, it returns all lines.
func (r *Request) mediaType() string {
	values := r.Header("Content-Type")
	media := strings.Join(values, ", ")
	if len(values) == 1 {
		media, _, _ = strings.Cut(media, ";")
	}
	return strings.ToLower(strings.TrimSpace(media))
}

// isJSON reports whether a media type is JSON: application/json, or one with the
// suffix +json (RFC 6839, section 3.1).
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// coding returns the Content-Encoding in lower case, and "" for the identity.
func (r *Request) coding() string {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(r.Header("Content-Encoding"), ", ")))
	if coding == "identity" {
		return ""
	}
	return coding
}

// A body is inflated only within these bounds, in bytes. The second is as much as
// an event of Lambda can contain without compression, so a compressed body costs
// no more than another one. The first limits what malicious input costs, of which
// each byte can take 100 ns.
const (
	maxDeflated = 1 << 20
	maxInflated = 6 << 20
)

// uncoded returns the body without gzip or deflate (RFC 9110, section 8.4.1), or,
// if it cannot be inflated, the body and its coding.
func (r *Request) uncoded() (coding string, body []byte, err error) {
	coding = r.coding()
	body, err = r.Body()
	if err != nil || len(body) > maxDeflated {
		return coding, body, err
	}
	var z io.Reader
	switch coding {
	case "gzip", "x-gzip":
		z, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate":
		z, err = zlib.NewReader(bytes.NewReader(body))
	default:
		return coding, body, nil
	}
	if err != nil {
		return coding, body, nil
	}
	inflated, err := io.ReadAll(io.LimitReader(z, maxInflated+1))
	if err != nil || len(inflated) > maxInflated {
		return coding, body, nil
	}
	return "", inflated, nil
}

// boundary returns the boundary of a multipart body, or "".
func (r *Request) boundary() string {
	_, params, _ := mime.ParseMediaType(strings.Join(r.Header("Content-Type"), ", "))
	return params["boundary"]
}

// splitMultipart returns the parts of a multipart body (RFC 2046, section 5.1), each
// with its header fields. It accepts only bodies that every parser divides in the
// same way: nothing precedes the first delimiter or follows the last one, lines end
// with CRLF, and the parts do not contain the boundary.
func splitMultipart(body []byte, boundary string) (parts [][]byte, ok bool) {
	delimiter, crlf := []byte("--"+boundary), []byte("\r\n")
	parts = bytes.Split(body, delimiter)
	first, last := parts[0], parts[len(parts)-1]
	if len(first) > 0 || string(last) != "--" && string(last) != "--\r\n" {
		return nil, false
	}
	parts = parts[1 : len(parts)-1]
	for i, part := range parts {
		if len(part) < 4 || !bytes.HasPrefix(part, crlf) || !bytes.HasSuffix(part, crlf) {
			return nil, false
		}
		parts[i] = part[2 : len(part)-2]
	}
	return parts, true
}
