package lambdahttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// requestBody is the body of an http.Request, which can be read only once. It
// is read on demand, which most requests do not need, and restored for the
// handler.
type requestBody struct {
	r     *http.Request
	limit int64

	once sync.Once
	data []byte
	err  error
}

var (
	errBase64 = &BodyError{Detail: "it is marked as base64 but is not valid base64"}
	errShort  = &BodyError{Detail: "it ended early"}
)

// errBodyRead is a programming error.
var errBodyRead = errors.New("lambdahttp: another handler has already read the request body; put Middleware around it")

// bytes returns the whole body.
func (b *requestBody) bytes() ([]byte, error) {
	b.once.Do(b.read)
	if b.err != nil {
		return nil, b.err
	}
	return b.data, nil
}

func (b *requestBody) read() {
	switch {
	case b.r.ContentLength > b.limit:
		b.err = &http.MaxBytesError{Limit: b.limit}
		return
	case b.r.Body == nil:
		return
	}
	b.data, b.err = io.ReadAll(io.LimitReader(b.r.Body, b.limit+1))
	switch {
	case b.err != nil:
		b.err = errShort // or another failure of the transfer
	case int64(len(b.data)) > b.limit:
		b.err = &http.MaxBytesError{Limit: b.limit}
	case len(b.data) == 0 && b.r.ContentLength > 0:
		// The server would have reported a body that ended early. Without this error
		// the fingerprints of all requests would be equal.
		b.err = errBodyRead
	}
}

// restore gives r, a copy of the request, the body.
func (b *requestBody) restore(r *http.Request) {
	if b.data == nil {
		return // nothing was read
	}
	read := bytes.NewReader(b.data)
	if b.err == nil {
		r.Body = body{read, b.r.Body}
		return
	}
	r.Body = body{io.MultiReader(read, b.r.Body), b.r.Body}
}

// body reads from one and closes the other.
type body struct {
	io.Reader
	io.Closer
}

// isUnread reports whether the content of the body is unknown.
func isUnread(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge) || errors.Is(err, errBodyRead) || errors.Is(err, errShort)
}
