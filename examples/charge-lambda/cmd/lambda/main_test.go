// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestNewHandler(t *testing.T) {
	for _, row := range []struct {
		env  map[string]string
		want string // part of the error
	}{
		{nil, "ONCE_TABLE"},
		{map[string]string{"ONCE_TABLE": "once-records"}, "PROVIDER_URL"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "provider"}, "PROVIDER_URL"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "EVENTS": "sqs"}, "invalid EVENTS \"sqs\""},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "ONCE_METRICS_NAMESPACE": ""}, "ONCE_METRICS_NAMESPACE"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1"}, ""},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "EVENTS": "rest"}, ""},
	} {
		for _, name := range []string{"ONCE_TABLE", "PROVIDER_URL", "EVENTS"} {
			t.Setenv(name, row.env[name])
		}
		t.Setenv("ONCE_METRICS_NAMESPACE", "Charges")
		if namespace, set := row.env["ONCE_METRICS_NAMESPACE"]; set {
			t.Setenv("ONCE_METRICS_NAMESPACE", namespace)
		}
		h, err := newHandler(t.Context(), io.Discard)
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%v: got error %v, want %q in it", row.env, err, row.want)
		case row.want == "" && h == nil:
			t.Errorf("%v: no handler", row.env)
		}
	}
}

// The metrics of an invocation are printed when it ends, for each source of
// events. Nothing listens at the table's address, so the request is refused.
func TestMetricsArePrinted(t *testing.T) {
	for name, value := range map[string]string{
		"ONCE_TABLE": "once-records", "ONCE_METRICS_NAMESPACE": "Charges", "PROVIDER_URL": "http://127.0.0.1:1",
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1",
	} {
		t.Setenv(name, value)
	}
	const headers, body = `"headers":{"Content-Type":"application/json","Idempotency-Key":"\"8e03978e-40d5-43e8-bc93-6894a57f9324\""}`,
		`"body":"{\"amount\":4200,\"currency\":\"eur\",\"customer\":\"cus_1\"}"`
	for source, ev := range map[string]string{
		"http": `{"version":"2.0","routeKey":"POST /charges","rawPath":"/charges",` + headers + `,"requestContext":{"http":{"method":"POST","path":"/charges"}},` + body + `}`,
		"rest": `{"resource":"/{proxy+}","path":"/charges","httpMethod":"POST",` + headers + `,"requestContext":{"resourcePath":"/{proxy+}","path":"/charges","identity":{"apiKeyId":"tenant-1"}},` + body + `}`,
	} {
		t.Setenv("EVENTS", source)
		var stdout bytes.Buffer
		h, err := newHandler(t.Context(), &stdout)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := h.Invoke(t.Context(), []byte(ev))
		if err != nil || !strings.Contains(string(answer), `"statusCode":503`) {
			t.Errorf("%s: the answer is %s, %v", source, answer, err)
		}
		if line := stdout.String(); !strings.Contains(line, `"Namespace":"Charges"`) || !strings.Contains(line, `"operation":"POST /charges"`) || !strings.Contains(line, `"once.request_ended":1`) {
			t.Errorf("%s: it printed %q", source, line)
		}
	}
}
