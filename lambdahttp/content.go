// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"mime"
	"strings"

	"github.com/once-lambda/once/internal/canonical"
)

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
