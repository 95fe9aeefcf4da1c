// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"net/http"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp/policy"
)

// rules returns what clients have to know about keys. It opens no store, because a
// policy does not depend on one.
func rules(c *config) (*policy.Policy, error) {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		return nil, err
	}
	return policy.New(guard, charge.Keys, c.keys), nil
}

// printPolicy prints the rules under the profile in the environment.
func printPolicy(getenv func(string) string, stdout io.Writer, openAPI bool) error {
	c, err := readConfig(getenv)
	if err != nil {
		return err
	}
	published, err := rules(&c)
	if err != nil {
		return err
	}
	text := []byte(published.Markdown())
	if openAPI {
		text = published.OpenAPI()
	}
	_, err = stdout.Write(text)
	return err
}

// policyPath is the path of the page with the rules. Problems link to it.
const policyPath = "/idempotency"

// policyPage returns the handler of that page.
func policyPage(c *config) (http.Handler, error) {
	published, err := rules(c)
	if err != nil {
		return nil, err
	}
	b := bytes.NewBufferString(pageHead)
	// The page has an anchor for each problem, which is HTML. Its text is this
	// program's own.
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithRendererOptions(html.WithUnsafe()))
	if err := markdown.Convert([]byte(published.Markdown()), b); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "This path only serves GET.", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(b.Bytes()) // an error means that the client has disconnected
	}), nil
}

const pageHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Idempotency keys</title>
<style>body{font:1em/1.5 system-ui;max-width:60em;margin:2em auto;padding:0 1em}td,th{text-align:left;vertical-align:top;padding:.3em .6em;border-bottom:1px solid #ccc}pre{overflow:auto}</style>
`
