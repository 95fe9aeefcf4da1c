// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

func unique() string { return strings.ToLower(rand.Text()) }

// How a key is sent, and which requests have one.
var keyRequirements = slices.Concat(
	of("key-format key-length padded-key uuid-value hostile-key one-key header-only missing-key optional-key"),
	[]requirement{{
		name: "safe-methods", text: "GET, HEAD and OPTIONS need no key, and nothing is stored for them", asks: "O3 O4 Pq Pa R6",
		run: func(c *check) {
			key := c.newKey()
			location := c.created(c.charge(key)).header.Get("Location")
			methods := []string{"GET"}
			if c.routes {
				methods = append(methods, "HEAD")
			}
			for _, method := range methods {
				c.want(c.read(method, location, ""), http.StatusOK)
				if c.profile.Name == "uuid" {
					continue // see read-with-key
				}
				for range 2 {
					a := c.read(method, location, key)
					c.want(a, http.StatusOK)
					if a.header.Get("Idempotent-Replayed") != "" || a.header.Get("Location") != "" {
						c.failf("%s got a replay: %s", method, a)
					}
				}
			}
			if c.routes {
				c.created(c.charge("", at("OPTIONS", "/charges"))) // the shop's OPTIONS does what POST does
				c.created(c.charge(key, at("OPTIONS", "/charges")))
				c.effects(3, 3)
			}
		},
	}},
	of("read-with-key put-delete put-delete-opt-in patch"),
)

// For whom and for what a key is valid.
var scopeRequirements = slices.Concat(
	of("new-key other-caller no-caller other-endpoint other-method other-resource"),
	[]requirement{{
		name: "other-path", text: "At another path, a key never gets the first path's response", asks: "R2", on: shops,
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key, at("POST", "/accounts/1/charges")))
			switch other := c.charge(key, at("POST", "/accounts/2/charges")); other.status {
			case 201:
				if c.created(other); c.profile.Name == "stripe" {
					c.failf("got %s, want a refusal: a key of Stripe belongs to the whole API", other)
				}
				c.effects(2, 2)
			default:
				c.problem(other, "key-reused")
				c.effects(1, 1)
			}
			c.replays(c.charge(key, at("POST", "/accounts/1/charges")), first)
		},
	}},
	of("catch-all"),
)

// seal encrypts the responses of the shops that have it.
var seal = kit.NewSealer()

func compressed(text string, level int) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, level) // the level is valid
	_, _ = w.Write([]byte(text))           // a buffer accepts everything
	_ = w.Close()
	return b.String()
}

// Which requests with one key are the same request, and what is stored of them.
var payloadRequirements = slices.Concat(
	of("other-payload"),
	and("payload-first", func(c *check) {
		c.treat(conduct{cut: true})
		unknown := c.newKey()
		c.want(c.charge(unknown), http.StatusBadGateway)
		c.problem(c.charge(unknown, withBody(c.body(9000))), "key-reused")
		c.effects(1, 1)
	}),
	[]requirement{{
		name: "same-meaning", text: "JSON is compared by its meaning: space, order and escapes make no difference, at any depth", asks: "B0 B3",
		run: func(c *check) {
			format, values := `{"amount":%[1]s,"currency":"usd","customer":"%[2]s"}`, []any{"4200", c.customer}
			respelt := "{ \"customer\" : \"%[2]s\",\n\t\"currency\":\"\\u0075sd\", \"amount\": 4200 }"
			if c.routes {
				format = strings.TrimSuffix(format, "}") + `,"note":{"b":[1.50,{"y":"é","x":null}],"a":true}}`
				respelt = strings.TrimSuffix(respelt, "}") + `, "note": {"a": true, "b": [ 15e-1, {"x": null, "y": "\u00e9"} ]} }`
			}
			key := c.newKey()
			first := c.created(c.charge(key, withBody(fmt.Sprintf(format, values...))))
			c.replays(c.charge(key, withBody(fmt.Sprintf(respelt, values...))), first)
			c.replays(c.charge(key, withBody(fmt.Sprintf(respelt, values...)), withHeader("Content-Type", "Application/JSON; charset=utf-8")), first)
			if c.routes {
				reordered := strings.Replace(fmt.Sprintf(format, values...), `[1.50,{"y":"é","x":null}]`, `[{"y":"é","x":null},1.50]`, 1)
				c.problem(c.charge(key, withBody(reordered)), "key-reused")
			}
			c.effects(1, 1)
		},
	}, {
		name: "same-content", text: "Bodies with the same parts, or compressed anew, are equal; another media type is another payload", asks: "B3", on: shops,
		run: func(c *check) {
			form := func(boundary, amount string) func(*call) {
				return func(r *call) {
					r.body = fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n%s\r\n--%[1]s--\r\n", boundary, amount)
					withHeader("Content-Type", "multipart/form-data; boundary="+boundary)(r)
				}
			}
			text := strings.Repeat("one line of many\n", 100)
			packed := func(level int) func(*call) {
				return func(r *call) {
					r.body = compressed(text, level)
					withHeader("Content-Type", "text/plain")(r)
					withHeader("Content-Encoding", "gzip")(r)
				}
			}
			unpacked := func(media string) func(*call) {
				return func(r *call) {
					r.body = text
					withHeader("Content-Type", media)(r)
				}
			}
			upload := at("POST", "/uploads/"+c.customer)
			for i, row := range []struct{ first, same, other func(*call) }{
				{form("one", "4200"), form("two", "4200"), form("one", "9000")},
				{packed(gzip.BestSpeed), packed(gzip.BestCompression), unpacked("text/html")},
				{unpacked("text/plain"), unpacked("Text/Plain; charset=utf-8"), unpacked("text/html")},
			} {
				key := c.newKey()
				first := c.created(c.charge(key, upload, row.first))
				c.replays(c.charge(key, upload, row.same), first)
				c.problem(c.charge(key, upload, row.other), "key-reused")
				c.effects(i+1, i+1)
			}
		},
	}, {
		name: "delimiters", text: "Values that look alike when they are joined are different payloads", asks: "B3 B5",
		run: func(c *check) {
			key := c.newKey()
			body := func(amount, customer string) func(*call) {
				return withBody(fmt.Sprintf(`{"amount":%s,"currency":"usd","customer":%q}`, amount, customer))
			}
			c.created(c.charge(key, body("12", c.customer)))
			for _, pair := range [][2]string{{"1", "2" + c.customer}, {"1", "2|usd|" + c.customer}, {"12", c.customer + "|"}, {"12", c.customer + `"`}} {
				c.problem(c.charge(key, body(pair[0], pair[1])), "key-reused")
			}
			c.effects(1, 1)
		},
	}},
	of("selected-values"),
	[]requirement{{
		name: "digest", text: "The comparison can use a digest that the client sends", asks: "D2.4", on: shops,
		options: func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest },
		run: func(c *check) {
			digest := func(body string) func(*call) {
				sum := sha256.Sum256([]byte(body))
				return withHeader("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
			}
			key := c.newKey()
			c.problem(c.charge(key), "invalid-digest")
			c.problem(c.charge(key, digest(c.body(9000))), "invalid-digest")
			first := c.created(c.charge(key, digest(c.body(4200))))
			c.replays(c.charge(key, digest(c.body(4200))), first)
			c.problem(c.charge(key, withBody(c.body(9000)), digest(c.body(9000))), "key-reused")
			c.effects(1, 1)
		},
	}, {
		name: "hashes-only", text: "The store has neither keys nor bodies of requests", asks: "B5 R7", alone: true,
		run: func(c *check) {
			key := c.newKey()
			// This spelling is not in the response.
			body := fmt.Sprintf("{ \"customer\":%q,  \"currency\":\"usd\",  \"amount\":  4200 }", c.customer)
			hidden := []string{key, strings.ReplaceAll(key, "-", ""), body, `:  4200`}
			if c.routes {
				body = strings.TrimSuffix(body, "}") + `, "note": "only in the request" }`
				hidden = append(hidden, "only in the request")
			}
			a := c.created(c.charge(key, withBody(body)))
			dump := c.stored()
			if !strings.Contains(dump, a.header.Get("Location")) {
				c.failf("the dump does not contain the response, so it shows nothing")
			}
			for _, text := range hidden {
				if strings.Contains(strings.ToLower(dump), strings.ToLower(text)) {
					c.failf("the store contains %q", text)
				}
			}
		},
	}, {
		name: "sealed", text: "An API can have its stored responses encrypted", asks: "–", on: shops,
		options: guarded(func(o *idempotent.Operation) { o.Seal = seal }),
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			if dump := c.stored(); strings.Contains(dump, c.id(first)) || strings.Contains(dump, c.customer) {
				c.failf("the store contains the response: %s", dump)
			}
		},
	}, {
		name: "keyed-hashes", text: "Equal requests under two keys have different hashes", asks: "R7", alone: true,
		run: func(c *check) {
			c.created(c.charge(c.newKey()))
			c.created(c.charge(c.newKey()))
			f := c.fingerprints()
			if len(f) != 2 || len(f[0]) < 16 || f[0] == f[1] {
				c.failf("the stored fingerprints are %q", f)
			}
		},
	}},
)
