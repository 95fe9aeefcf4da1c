package lambdahttp

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"

	"github.com/once-lambda/once/internal/sfv"
)

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
