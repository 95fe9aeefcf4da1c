// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"encoding/json"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/lambdahttp"
)

// path returns the path at which the charge can be read.
func (c Charge) path() string { return "/charges/" + c.ID }

func found(c Charge) lambdahttp.Response { return jsonResponse(http.StatusOK, c) }

// problem returns an error response in the format of the profile. RFC 9457
// defines the type about:blank for problems that the status describes fully.
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

// respond converts a response to an event's response.
func respond(r lambdahttp.Response) (events.APIGatewayV2HTTPResponse, error) {
	headers := make(map[string]string, len(r.Header))
	for name := range r.Header {
		headers[name] = r.Header.Get(name)
	}
	return events.APIGatewayV2HTTPResponse{StatusCode: r.Status, Headers: headers, Body: string(r.Body)}, nil
}
