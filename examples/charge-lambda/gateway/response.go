package gateway

import (
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
)

// responseError says why a response cannot be delivered.
type responseError struct{ problem string }

func (e *responseError) Error() string { return "gateway: the handler's response " + e.problem }

// writeResponse translates the handler's response. Nothing is written if the
// error is not nil.
func writeResponse(w http.ResponseWriter, r events.APIGatewayV2HTTPResponse) error {
	body := []byte(r.Body)
	if r.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(r.Body); err != nil {
			return &responseError{"has a body that is not the base64 it says it is"}
		}
	}
	switch {
	case r.StatusCode < 200 || r.StatusCode > 599:
		return &responseError{"has no status of 200 to 599"}
	case len(r.Body) > MaxPayload:
		return &responseError{"is larger than the 6 MB that Lambda returns"}
	}
	h := w.Header()
	h["Content-Type"] = nil // nothing is guessed from the body
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	for _, cookie := range r.Cookies {
		h.Add("Set-Cookie", cookie)
	}
	w.WriteHeader(r.StatusCode)
	w.Write(body) // if it fails, the client has gone
	return nil
}

// writeMessage answers in the gateway's own name, in the form that API Gateway
// has for it.
func writeMessage(w http.ResponseWriter, status int, message string) {
	body, _ := json.Marshal(map[string]string{"message": message})
	write(w, status, "application/json", body)
}

// writeTooLarge answers a body that Lambda would not be given.
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
