// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
)

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
