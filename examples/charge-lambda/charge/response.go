package charge

import (
	"encoding/json"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/lambdahttp"
)

// path is where the charge can be read.
func (c Charge) path() string { return "/charges/" + c.ID }

// created is the answer to a charge that was made. A resolved record gets it
// from here too, so that a client cannot tell whether its charge was confirmed
// by the provider's reply or by a later look into its ledger.
func created(c Charge) lambdahttp.Response {
	r := jsonResponse(http.StatusCreated, c)
	r.Header.Set("Location", c.path())
	return r
}

func found(c Charge) lambdahttp.Response { return jsonResponse(http.StatusOK, c) }

// problem is an answer in place of a charge, in the form of the profile. RFC
// 9457 has the type about:blank for problems that the status says all about.
func (h *handler) problem(status int, code, detail string) lambdahttp.Response {
	return h.render(lambdahttp.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	})
}

func jsonResponse(status int, v any) lambdahttp.Response {
	body, _ := json.Marshal(v) // strings and numbers always encode
	return lambdahttp.Response{
		Status: status,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   body,
	}
}

// respond puts a response into an event.
func respond(r lambdahttp.Response) (events.APIGatewayV2HTTPResponse, error) {
	headers := make(map[string]string, len(r.Header))
	for name := range r.Header {
		headers[name] = r.Header.Get(name)
	}
	return events.APIGatewayV2HTTPResponse{StatusCode: r.Status, Headers: headers, Body: string(r.Body)}, nil
}
