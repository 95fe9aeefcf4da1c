// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector would distort the measurement, so these limits are checked
// without it (make test-cost).

package lambdahttp_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

// A request that does not call the store costs a fraction of the time that the
// Lambda runtime needs to decode the event and to encode the response: at most
// 0.15 to pass it through, and a third to refuse it. The cost of the exchange
// itself (bare) is not counted. The tests for each event type run one after the
// other, alone.
func TestLimits(t *testing.T) {
	for name, calls := range benched {
		t.Run(name, func(t *testing.T) {
			var runtime, bare call
			for _, c := range calls(t) {
				switch {
				case c.name == "runtime":
					runtime = c
				case c.name == "bare":
					bare = c
				case c.limit > 0:
					ops := []func(){sends(t, runtime), sends(t, c)}
					if bare.send != nil {
						ops = append(ops, sends(t, bare))
					}
					took := append(kit.Quickest(t, 100, 50, ops...), 0)
					part := float64(took[1]-took[2]) / float64(took[0])
					t.Logf("%-24s %.2f of %s", c.name, part, took[0])
					if part > c.limit {
						t.Errorf("%s takes %.2f of the runtime's time, want at most %.2f", c.name, part, c.limit)
					}
				}
			}
		})
	}
	t.Run("bodies", limitsOfBodies)
}

// A request whose body has 6 MB, or whose headers are long, costs at most three
// times what encoding/json needs to decode 6 MB of records, whether it is refused
// by its key, by its body, or by its fingerprint.
func limitsOfBodies(t *testing.T) {
	const size = 6 << 20
	records := "[" + strings.Repeat(`{"id":1234567,"name":"item","price":10.50,"tags":["a","b"],"active":true},`, size/75) + "{}]"
	withKey := func(key string) string {
		return `{"idempotency_key":"` + key + `","b":` + records + `,"a":1}`
	}
	// Four deflate blocks that contain nothing except their own Huffman codes.
	blocks, err := hex.DecodeString("04c081000000000090ff6b100007020000000040feaf41001c080000000000f9bf060170200000000000e4ff1a")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256Of(records)
	digests := strings.Repeat(digest+",", 1000) + digest
	header := func(name, value string) map[string]string { return map[string]string{name: value} }
	type options = func(*lambdahttp.Options)
	rule := func(r lambdahttp.FingerprintRule) options {
		return func(o *lambdahttp.Options) { o.Fingerprint = r }
	}
	fields := rule(lambdahttp.Fields("/0/id", "/1/id", "/2/id", "/3/id", "/80000/id"))
	const text, multi = "text/plain", "multipart/form-data; boundary="
	for name, c := range map[string]struct {
		body, media string
		header      map[string]string
		options     options
		status      int
	}{
		"JSON":             {records, "application/json", nil, nil, 422},
		"broken JSON":      {records[:len(records)-1], "application/json", nil, nil, 422},
		"fields":           {records, "application/json", nil, fields, 422},
		"key in the body":  {withKey(keyA), "application/json", nil, bodyKey, 422},
		"long key in it":   {withKey(strings.Repeat("k", 1<<20)), "application/json", nil, bodyKey, 400},
		"broken, with key": {withKey(keyA) + "}", "application/json", nil, bodyKey, 400},
		"long key":         {records, "application/json", header("idempotency-key", `"`+strings.Repeat("k", 1<<20)+`"`), nil, 400},
		"two keys":         {records, "application/json", header("idempotency-key", `"`+keyA+`","`+keyA+`"`), nil, 400},
		"text":             {records, text, nil, nil, 422},
		"digests":          {records, text, header("content-digest", digests), rule(lambdahttp.VerifiedDigest), 422},
		"wrong digest":     {records, text, header("content-digest", digests+","+sha512Of("")), rule(lambdahttp.VerifiedDigest), 400},
		"parts":            {strings.Repeat("--a\r\n\r\n", size/7) + "--a--", multi + "a", nil, nil, 422},
		"near boundaries":  {strings.Repeat("-", size), multi + strings.Repeat("-", 69) + "a", nil, nil, 422},
		"bomb":             {strings.Repeat(gzipped(9, strings.Repeat("x", 16<<20)), 60), text, header("content-encoding", "gzip"), nil, 422},
		"empty members":    {strings.Repeat(gzipped(1, ""), 1<<20/30), text, header("content-encoding", "gzip"), nil, 422},
		"empty blocks":     {"\x78\x9c" + strings.Repeat(string(blocks), 1<<20/45-1), text, header("content-encoding", "deflate"), nil, 422},
		"long query":       {"", text, nil, nil, 422},
		"zipped JSON":      {gzipped(1, records[:size/2]), "application/json", header("content-encoding", "gzip"), nil, 422},
	} {
		t.Run(name, func(t *testing.T) {
			h := lambdahttp.APIGatewayV2(newGuard(t), func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return events.APIGatewayV2HTTPResponse{StatusCode: 201}, nil
			}, single, func(o *lambdahttp.Options) {
				if c.options != nil {
					c.options(o)
				}
			})
			send := func(ev events.APIGatewayV2HTTPRequest, status int) {
				if a, err := h(t.Context(), ev); err != nil || a.StatusCode != status {
					t.Fatalf("got %d %.200s %v, want %d", a.StatusCode, a.Body, err, status)
				}
			}
			ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2-post.json")
			ev.Headers = map[string]string{"idempotency-key": `"` + keyA + `"`, "content-type": c.media, "content-digest": sha256Of(`{"idempotency_key":"` + keyA + `"}`)}
			ev.Body, ev.IsBase64Encoded = `{"idempotency_key":"`+keyA+`"}`, false
			send(ev, 201)
			maps.Copy(ev.Headers, c.header)
			ev.Body, ev.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(c.body)), true
			if c.body == "" {
				ev.RawQueryString = strings.Repeat("b=1&a=2&", 1<<17)
			}
			kit.Within(t, func() (string, bool) {
				took := kit.Quickest(t, 3, 1, func() { send(ev, c.status) }, func() {
					var v any
					if err := json.Unmarshal([]byte(records), &v); err != nil {
						t.Fatal(err)
					}
				})
				return fmt.Sprintf("%s, decoded in %s", took[0], took[1]), took[0] <= 3*took[1]
			})
		})
	}
}

// sends returns a function that sends the request of c once.
func sends(t *testing.T, c call) func() {
	i := 0
	return func() {
		i++
		if err := c.send(i); err != nil {
			t.Fatal(err)
		}
	}
}
