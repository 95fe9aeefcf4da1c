// SPDX-License-Identifier: Apache-2.0

// Package policy renders what clients have to know about the keys of a handler, which a
// server should publish (draft-ietf-httpapi-idempotency-key-header-07, section 2.5):
// Markdown for people, OpenAPI for programs. A function that serves requests does not
// need this package: render the policy in a command or a test, and publish the result.
package policy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

// Policy describes to clients how a handler uses keys.
type Policy struct{ rules *describe.Policy }

// New returns the policy of a handler of package lambdahttp that is built with the same
// arguments, so the two always agree. It panics if an option is invalid, like the
// handler's constructor.
func New(g *idempotent.Guard, optFns ...func(*lambdahttp.Options)) *Policy {
	handler := lambdahttp.Middleware(g, optFns...)(http.NotFoundHandler())
	return &Policy{handler.(describe.Handler).Describe()}
}

// Markdown renders the policy as a page for clients.
func (p *Policy) Markdown() string { return markdown(p.rules) }

// OpenAPI renders the policy as an OpenAPI 3.1.0 document in JSON. It consists
// of components only, to which the description of an API refers:
//
//	parameters:
//	  - $ref: 'idempotency.json#/components/parameters/IdempotencyKey'
//	responses:
//	  '409':
//	    $ref: 'idempotency.json#/components/responses/Idempotency409'
//
// There is one response for each status, with an example for each situation,
// and one header for each that this package sets on the handler's own
// responses. If Content-Digest is required there is a second parameter. If the
// key is a member of the body there is a schema instead of the parameter. What
// OpenAPI cannot express, such as the retention, is under
// "x-idempotency-policy".
func (p *Policy) OpenAPI() []byte { return openAPIOf(p.rules) }

// markdown renders a policy as a page for clients.
func markdown(p *describe.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Idempotency keys\n\n"+
		"A request with %s is executed once. Repeat it with the same key, and you get the response of the first one.\n"+
		"Create a new random key for each operation, and store it until you have a response. A key must not contain personal data.\n\n", carrier(p))
	writeRules(&b, p)
	b.WriteString("\n## Responses\n\nA response to your request may have these headers:\n\n" +
		"| header | values | meaning |\n|---|---|---|\n")
	for _, h := range p.AddedHeaders {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", h.Name, codes(h.Values), cell(h.Description))
	}
	fmt.Fprintf(&b, "\nA replayed response has the stored status and body, and %s.\n", replayed(p))
	b.WriteString("\n## Other responses\n\n| status | meaning | identified by | headers |\n|---|---|---|---|\n")
	for _, a := range p.Answers {
		fmt.Fprintf(&b, "| %d %s | <a id=\"%s\"></a>**%s**. %s | %s | %s |\n",
			a.Status, http.StatusText(a.Status), a.Situation, cell(strings.TrimSuffix(a.Title, ".")), cell(a.Detail), members(&a), headers(&a))
	}
	fmt.Fprintf(&b, "\nFor example:\n\n%s", example(p))
	return b.String()
}

// writeRules writes the table of the rules for keys.
func writeRules(b *strings.Builder, p *describe.Policy) {
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(b, "| %s | %s |\n", name, text)
		}
	}
	b.WriteString("| | |\n|---|---|\n")
	line("the key is in", place(p))
	line("it is required", map[bool]string{true: "yes", false: "no: a request without one is executed each time"}[p.Required])
	line("a key is", cell(p.KeySyntax))
	line("characters", lengths(p))
	line("pattern", code(p.KeyPattern)) // pattern and example can be empty with a custom syntax
	line("for example", code(p.KeyExample))
	line("guarded methods", strings.Join(p.Methods, ", "))
	line("methods that must not have a key", strings.Join(p.ForbiddenMethods, ", "))
	line("all other methods", "a key is ignored")
	line("valid for", cell(p.Scope))
	line("belongs to", cell(p.Extent))
	line("compared", cell(p.Fingerprint))
	if p.Digest {
		line("`Content-Digest`", "required, with a sha-256 or sha-512 digest of the body (RFC 9530)")
	}
	line("retention", period(p.Retention)+" after the response was stored")
	if p.UnresolvedRetention == 0 {
		line("an unknown outcome", "is stored until it is settled")
	} else {
		line("an unknown outcome", "is stored for "+period(p.UnresolvedRetention)+" if it is not resolved")
	}
	if p.WaitFor > 0 {
		line("while the first request runs", "the next one waits for at most "+period(p.WaitFor))
	}
	line("a response of 5xx", cell(p.ServerErrors))
	if p.DocsURL != "" {
		line("more", "["+cell(p.DocsURL)+"](<"+p.DocsURL+">)") // <…> alone is a link only with a scheme
	}
}

// carrier describes where a request carries its key.
func carrier(p *describe.Policy) string {
	if p.Field != "" {
		return "a key, the field " + code(p.Field) + " of its JSON body,"
	}
	return "an " + code(p.Header) + " header"
}

func place(p *describe.Policy) string {
	if p.Field != "" {
		return "the field " + code(p.Field) + " of the JSON body"
	}
	return "the request header " + code(p.Header) + ", on one line"
}

func lengths(p *describe.Policy) string {
	if p.MinLength == p.MaxLength {
		return strconv.Itoa(p.MinLength)
	}
	return fmt.Sprintf("%d to %d", p.MinLength, p.MaxLength)
}

// replayed describes the headers of a replay.
func replayed(p *describe.Policy) string {
	named := slices.DeleteFunc(slices.Clone(p.ReplayedHeaders), func(name string) bool { return name == "*" })
	text := "these of its headers: " + codes(named)
	if len(named) < len(p.ReplayedHeaders) {
		text = "its headers except " + codes(p.OmittedHeaders)
		if len(named) > 0 {
			text += ". It also has " + codes(named)
		}
	}
	return text
}

// headers lists the headers of a response, with the value of each that has only
// one.
func headers(a *describe.Answer) string {
	names := make([]string, len(a.Headers))
	for i, h := range a.Headers {
		names[i] = code(h.Name)
		if len(h.Values) == 1 {
			names[i] = code(h.Name + ": " + h.Values[0])
		}
	}
	return strings.Join(names, ", ")
}

// members lists the members of a response's body by which a program identifies
// the situation: the strings, without the texts for people and the example
// values.
func members(a *describe.Answer) string {
	document, _ := decoded(&a.Minimal)
	var found []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(strings.TrimPrefix(path+"."+name, "."), v[name])
			}
		case string:
			if v != "" && v != a.Title && v != a.Detail && v != "about:blank" {
				found = append(found, code(path+": "+v))
			}
		}
	}
	walk("", document)
	return strings.Join(found, ", ")
}

// example renders one response as HTTP.
func example(p *describe.Policy) string {
	for _, a := range p.Answers {
		if a.Situation != lambdahttp.KeyReused.String() {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "```http\nHTTP/1.1 %d %s\n", a.Status, http.StatusText(a.Status))
		for _, name := range slices.Sorted(maps.Keys(a.Example.Header)) {
			fmt.Fprintf(&b, "%s: %s\n", name, a.Example.Header.Get(name))
		}
		fmt.Fprintf(&b, "\n%s\n```\n", a.Example.Body)
		return b.String()
	}
	return ""
}

// cell escapes text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", `\`, `\\`, "<", "&lt;", "*", `\*`, "_", `\_`, "`", "\\`").Replace(text)
}

// code formats text as inline code. It returns "" for an empty text.
func code(text string) string {
	if text == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	text = strings.ReplaceAll(text, "|", `\|`)
	if len(fence) > 1 {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}

func codes(texts []string) string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = code(t)
	}
	return strings.Join(out, ", ")
}

// period formats a duration, in hours if it is a whole number of them.
func period(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return d.String()
}
