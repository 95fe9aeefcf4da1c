// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

var errTooLarge = errors.New("gateway: the body is larger than Lambda accepts")

// maxIgnored limits how much of a too large body is read and discarded. A client that is still
// sending would otherwise see a broken connection instead of the answer.
const maxIgnored = 10 * MaxPayload

// readBody returns the request's body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxPayload+1))
	if err != nil {
		return nil, err
	}
	if len(body) > MaxPayload {
		io.CopyN(io.Discard, r.Body, maxIgnored)
		w.Header().Set("Connection", "close")
		return nil, errTooLarge
	}
	return body, nil
}

// defaultRoute is the key of the API's only route.
const defaultRoute = "$default"

// newEvent converts a request as
// docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
// describes payload format 2.0.
func newEvent(r *http.Request, body []byte, requestID string, now time.Time) events.APIGatewayV2HTTPRequest {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	event := events.APIGatewayV2HTTPRequest{
		Version:               "2.0",
		RouteKey:              defaultRoute,
		RawPath:               r.URL.Path,
		RawQueryString:        r.URL.RawQuery,
		Cookies:               cookies(r.Header),
		Headers:               headers(r),
		QueryStringParameters: query(r),
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey:     defaultRoute,
			AccountID:    "000000000000",
			Stage:        "$default",
			RequestID:    requestID,
			APIID:        "local",
			DomainName:   host,
			DomainPrefix: "local",
			Time:         now.UTC().Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch:    now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method:    r.Method,
				Path:      r.URL.Path,
				Protocol:  r.Proto,
				SourceIP:  source,
				UserAgent: r.UserAgent(),
			},
		},
		Body: string(body),
	}
	if !isText(r.Header.Get("Content-Type"), body) {
		event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return event
}

// isText reports whether a body is sent without base64.
func isText(contentType string, body []byte) bool {
	if len(body) == 0 {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || !utf8.Valid(body) {
		return false
	}
	switch media {
	case "application/json", "application/javascript", "application/xml":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}

// headers returns the request's headers, one value per name.
func headers(r *http.Request) map[string]string {
	out := map[string]string{"host": r.Host}
	for name, values := range r.Header {
		if name != "Cookie" {
			out[strings.ToLower(name)] = strings.Join(values, ",")
		}
	}
	return out
}

// cookies returns the request's cookies. Payload format 2.0 separates them from the headers.
func cookies(h http.Header) (out []string) {
	for _, line := range h.Values("Cookie") {
		for cookie := range strings.SplitSeq(line, ";") {
			if cookie = strings.TrimSpace(cookie); cookie != "" {
				out = append(out, cookie)
			}
		}
	}
	return out
}

func query(r *http.Request) map[string]string {
	var out map[string]string
	for name, values := range r.URL.Query() {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = strings.Join(values, ",")
	}
	return out
}

// responseError describes why a response cannot be delivered.
type responseError struct{ problem string }

func (e *responseError) Error() string { return "gateway: the handler's response " + e.problem }

// LogValue returns the text, which does not contain data of the response.
func (e *responseError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// writeResponse converts the handler's response. It writes nothing if the error
// is not nil.
func writeResponse(w http.ResponseWriter, r events.APIGatewayV2HTTPResponse) error {
	body := []byte(r.Body)
	if r.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(r.Body); err != nil {
			return &responseError{"has a body that is declared as base64 but is not"}
		}
	}
	switch {
	case r.StatusCode < 200 || r.StatusCode > 599:
		return &responseError{"has no status from 200 to 599"}
	case len(r.Body) > MaxPayload:
		return &responseError{"is larger than the 6 MB that Lambda returns"}
	}
	h := w.Header()
	h["Content-Type"] = nil // no content type is guessed from the body
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	for _, cookie := range r.Cookies {
		h.Add("Set-Cookie", cookie)
	}
	w.WriteHeader(r.StatusCode)
	w.Write(body) // an error means that the client has disconnected
	return nil
}

// writeMessage answers for the gateway itself, in the format of API Gateway.
func writeMessage(w http.ResponseWriter, status int, message string) {
	body, _ := json.Marshal(map[string]string{"message": message})
	write(w, status, "application/json", body)
}

// writeTooLarge answers a body that is too large for Lambda.
func writeTooLarge(w http.ResponseWriter) {
	body, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{
		"about:blank", http.StatusText(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge,
		"The body is larger than 6 MB (6291456 bytes), which is the most that Lambda accepts. Nothing was run. Send a smaller one.",
	})
	write(w, http.StatusRequestEntityTooLarge, "application/problem+json", body)
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	w.Write(body)
}
