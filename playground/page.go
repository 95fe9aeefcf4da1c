// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/aws/aws-lambda-go/events"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/policy"
)

// pagePath is the path of the page about idempotency keys. Problems link to it.
const pagePath = "/idempotency"

// page returns the handler of GET /idempotency: what clients have to know about
// keys, from the options of the handler. It is rendered at the first request.
func page(guard *idempotent.Guard, optFns []func(*lambdahttp.Options)) HandlerFunc {
	render := sync.OnceValues(func() (string, error) {
		rules, err := lambdahttp.NewPolicy(guard, optFns...)
		if err != nil {
			return "", err
		}
		var b bytes.Buffer
		b.WriteString(pageHead)
		// The page has an anchor for each problem, which is HTML. Its text is this
		// service's own.
		markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithRendererOptions(html.WithUnsafe()))
		err = markdown.Convert([]byte(policy.Markdown(rules)), &b)
		return b.String(), err
	})
	return func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		text, err := render()
		if err != nil {
			return events.APIGatewayV2HTTPResponse{}, err
		}
		return events.APIGatewayV2HTTPResponse{
			StatusCode: http.StatusOK, Headers: map[string]string{"Content-Type": "text/html; charset=utf-8"}, Body: text,
		}, nil
	}
}

const pageHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Idempotency keys</title>
<style>body{font:1em/1.5 system-ui;max-width:60em;margin:2em auto;padding:0 1em}td,th{text-align:left;vertical-align:top;padding:.3em .6em;border-bottom:1px solid #ccc}pre{overflow:auto}</style>
`
