package lambdahttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// requestBody is the body of an http.Request, which can be read once. It is
// read when somebody asks for it, which for most requests is nobody, and given
// back to the handler.
type requestBody struct {
	r     *http.Request
	limit int64

	once sync.Once
	data []byte
	err  error
}

var (
	errBase64 = &BodyError{Detail: "it is announced as base64 and is not"}
	errShort  = &BodyError{Detail: "it ended early"}
)

// errBodyRead is a mistake in the program.
var errBodyRead = errors.New("lambdahttp: the body was read before Middleware could see it; put Middleware around whatever reads it")

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
		b.err = errShort // or in another way that the client did not mean
	case int64(len(b.data)) > b.limit:
		b.err = &http.MaxBytesError{Limit: b.limit}
	case len(b.data) == 0 && b.r.ContentLength > 0:
		// The server would have reported a body that ended early. A fingerprint of
		// nothing would make all requests equal.
		b.err = errBodyRead
	}
}

// restore gives r, a copy of the request, its body back.
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

// isUnread reports whether nobody knows what stands in the body.
func isUnread(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge) || errors.Is(err, errBodyRead) || errors.Is(err, errShort)
}
