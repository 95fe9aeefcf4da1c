package lambdahttp

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
)

// VerifiedDigest is [RawBody] for clients that send a Content-Digest header
// (RFC 9530): the body has to match every digest in it that is sha-256 or
// sha-512, and one of these has to be there. Otherwise the request is refused
// with 400.
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
	Description: RawBody.Description + ", which have to match the Content-Digest header (RFC 9530, sha-256 or sha-512)",
	digest:      true,
}

var (
	errNoDigest     = &BodyError{digest: true, Detail: "there is none of sha-256 or sha-512"}
	errDigestSyntax = &BodyError{digest: true, Detail: "it is not a list of digests like sha-256=:…:"}
	errDigest       = &BodyError{digest: true, Detail: "the body has another digest"}
)

// verifyDigest checks body against the lines of a Content-Digest header. Other
// algorithms than ours are skipped: RFC 9530, section 5, calls them insecure or
// does not know them.
func verifyDigest(lines []string, body []byte) error {
	verified := false
	for _, line := range lines {
		p := &sf{line}
		digests, ok := p.byteDictionary()
		if !ok {
			return errDigestSyntax
		}
		for _, d := range digests {
			var want []byte
			switch d.key {
			case "sha-256":
				sum := sha256.Sum256(body)
				want = sum[:]
			case "sha-512":
				sum := sha512.Sum512(body)
				want = sum[:]
			default:
				continue
			}
			if !bytes.Equal(d.value, want) {
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
