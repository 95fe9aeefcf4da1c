// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

type status struct {
	StatusCode any
	Headers    map[string]string
}

func TestExploreOutcomes(t *testing.T) {
	answer := response{StatusCode: 404}
	pointer := &answer
	var missing *response
	for _, row := range []struct {
		answer any
		err    error
		want   string
	}{
		{nil, nil, "a success false"},
		{"created", nil, "a success false"},
		{missing, nil, "a success false"},
		{answer, nil, "status 404 true"},
		{&pointer, nil, "status 404 true"},
		{status{StatusCode: "404"}, nil, "a success false"},
		{response{StatusCode: 199}, nil, "status 199 false"},
		{response{StatusCode: 200}, nil, "a success false"},
		{response{StatusCode: 299}, nil, "a success false"},
		{response{StatusCode: 300}, nil, "status 300 false"},
		{response{StatusCode: 399}, nil, "status 399 false"},
		{response{StatusCode: 400}, nil, "status 400 true"},
		{response{StatusCode: 408}, nil, "status 408 false"},
		{response{StatusCode: 409}, nil, "status 409 false"},
		{response{StatusCode: 422}, nil, "status 422 false"},
		{response{StatusCode: 425}, nil, "status 425 false"},
		{response{StatusCode: 429}, nil, "status 429 false"},
		{response{StatusCode: 499}, nil, "status 499 true"},
		{response{StatusCode: 500}, nil, "status 500 false"},
		{response{StatusCode: 202}, nil, "a success false"},
		{events.ALBTargetGroupResponse{StatusCode: 202, Headers: map[string]string{"retry-after": "1"}}, nil, "status 202 false"},
		{events.ALBTargetGroupResponse{StatusCode: 201, Headers: map[string]string{"Retry-After": "1"}}, nil, "a success false"},
		{webAnswer{StatusCode: 202, Header: http.Header{"Retry-After": {"1"}}}, nil, "status 202 false"},
		{failures{}, nil, "a success false"},
		{failures{[]string{"m-1", "m-2"}}, nil, "2 failed messages false"},
		{struct{ BatchItemFailures int }{1}, nil, "a success false"},
		{response{StatusCode: 200}, errors.New("no table"), "*errors.errorString false"},
		{nil, idempotent.Final("declined", "Declined."), "*idempotent.FinalError true"},
	} {
		status, final := idempotenttest.OutcomeOf(row.answer, row.err)
		if got := fmt.Sprint(status, " ", final); got != row.want {
			t.Errorf("%#v, %v: got %s, want %s", row.answer, row.err, got, row.want)
		}
	}
}

// Two answers are compared as a replay stores them.
func TestExploreCompares(t *testing.T) {
	web := func(name, value string) any {
		return events.LambdaFunctionURLResponse{StatusCode: 200, Headers: map[string]string{name: value}}
	}
	list := func(values ...string) any {
		return events.ALBTargetGroupResponse{StatusCode: 200, MultiValueHeaders: map[string][]string{"X-Charge": values}}
	}
	channel := make(chan int)
	for what, row := range map[string]struct {
		first, again any
		same         bool
	}{
		"texts":                    {"a", "b", false},
		"a null member":            {map[string]any{"id": "1", "note": nil}, map[string]any{"id": "1"}, true},
		"a null member in a list":  {[]any{map[string]any{"note": nil}}, []any{map[string]any{}}, true},
		"statuses":                 {response{StatusCode: 200}, response{StatusCode: 201}, false},
		"bodies":                   {response{200, "a"}, response{200, "b"}, false},
		"a header":                 {web("X-Charge", "1"), web("X-Charge", "2"), false},
		"a header in another case": {web("X-Charge", "1"), web("x-charge", "2"), false},
		"a header of one":          {web("X-Charge", "1"), web("X-Other", "1"), true},
		"the date":                 {web("Date", "1"), web("date", "2"), true},
		"a mark of a replay":       {web("Idempotent-Replayed", "false"), web("idempotent-replayed", "true"), true},
		"a status of the key":      {web("Idempotency-Status", "new"), web("Idempotency-Status", "stored"), true},
		"exposed headers":          {web("Access-Control-Expose-Headers", "1"), web("access-control-expose-headers", "2"), true},
		"no headers":               {events.LambdaFunctionURLResponse{StatusCode: 200}, events.LambdaFunctionURLResponse{StatusCode: 200, Headers: map[string]string{}}, true},
		"lists of values":          {list("1"), list("1", "2"), false},
		"headers of net/http":      {webAnswer{200, http.Header{"X-Charge": {"1"}}, ""}, webAnswer{200, http.Header{"X-Charge": {"2"}}, ""}, false},
		"cookies":                  {events.LambdaFunctionURLResponse{StatusCode: 200, Cookies: []string{"a"}}, events.LambdaFunctionURLResponse{StatusCode: 200, Cookies: []string{"b"}}, true},
		"cookies without a status": {map[string]any{"cookies": "a"}, map[string]any{"cookies": "b"}, false},
		"headers without a status": {map[string]any{"headers": map[string]any{"a": 1}}, map[string]any{"headers": map[string]any{"b": 1}}, false},
		"no JSON":                  {channel, channel, true},
		"other texts than JSON":    {channel, make(chan int), false},
	} {
		if first, again := idempotenttest.Compared(row.first, row.again); (first == again) != row.same {
			t.Errorf("%s: got %s and %s", what, first, again)
		}
	}
}
