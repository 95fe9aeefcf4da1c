package lambdahttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

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
func (p *Policy) OpenAPI() []byte {
	d := openAPI{
		OpenAPI: "3.1.0",
		Info: openAPIInfo{Title: "Idempotency keys", Version: "1.0.0", Description: fmt.Sprintf(
			"A request with %s is executed once: repeated with the same key, it gets the response of the first one. "+
				"An outcome is stored for %s. Refer to these components from the operations with %s.",
			p.carrier(), period(p.Retention), strings.Join(p.Methods, ", "))},
		Components: openAPIComponents{
			Parameters: p.openAPIParameters(),
			Responses:  p.openAPIResponses(),
			Headers:    map[string]openAPIHeader{},
			Schemas:    map[string]*jsonSchema{keySchema: p.keySchema()},
		},
		Policy: p.openAPIPolicy(),
	}
	if s := p.answerSchema(); s != nil {
		d.Components.Schemas[answerSchema] = s
	}
	for _, h := range p.Marks {
		d.Components.Headers[h.Name] = h.openAPI()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(d) // strings, numbers and JSON always encode
	return b.Bytes()
}

// The names of the schemas.
const (
	keySchema    = "IdempotencyKey"
	answerSchema = "IdempotencyAnswer"
)

func schemaRef(name string) *jsonSchema { return &jsonSchema{Ref: "#/components/schemas/" + name} }

// keySchema describes the value that carries the key. In a body that value is
// the key itself, so only there it has a maximum length.
func (p *Policy) keySchema() *jsonSchema {
	s := &jsonSchema{
		Type:        "string",
		Description: fmt.Sprintf("%s; the key itself has %s characters", p.KeySyntax, p.lengths()),
		Pattern:     p.KeyPattern, MinLength: p.MinLength,
	}
	if p.KeyExample != "" {
		s.Examples = []string{p.KeyExample}
	}
	if p.Member != "" {
		s.MaxLength = p.MaxLength
	}
	return s
}

func (p *Policy) openAPIParameters() map[string]openAPIParameter {
	parameters := map[string]openAPIParameter{}
	if p.Header != "" {
		parameters["IdempotencyKey"] = openAPIParameter{
			Name: p.Header, In: "header", Required: p.Required, Schema: schemaRef(keySchema),
			Description: fmt.Sprintf(
				"A key that the client chooses, new for each operation. It is valid for %s, and belongs to %s. "+
					"Two requests with one key are the same if these are equal: %s. The outcome is stored for %s.",
				p.Scope, p.Extent, p.Fingerprint, period(p.Retention)),
		}
	}
	if p.Digest {
		parameters["ContentDigest"] = openAPIParameter{
			Name: "Content-Digest", In: "header", Required: true, Schema: &jsonSchema{Type: "string"},
			Description: "A sha-256 or sha-512 digest of the body (RFC 9530).",
		}
	}
	return parameters
}

// openAPIResponses returns one response for each status, and one for methods
// whose requests must not have a key.
func (p *Policy) openAPIResponses() map[string]openAPIResponse {
	groups := map[string][]PolicyAnswer{}
	for _, a := range p.Answers {
		name := fmt.Sprintf("Idempotency%d", a.Status)
		if a.Situation == KeyNotAllowed {
			name = "IdempotencyKeyNotAllowed"
		}
		groups[name] = append(groups[name], a)
	}
	responses := make(map[string]openAPIResponse, len(groups))
	for name, group := range groups {
		responses[name] = openAPIResponseOf(group)
	}
	return responses
}

func openAPIResponseOf(group []PolicyAnswer) openAPIResponse {
	var titles []string
	r := openAPIResponse{Headers: map[string]openAPIHeader{}, Content: map[string]openAPIMediaType{}}
	headers := map[string][]PolicyHeader{}
	for _, a := range group {
		titles = append(titles, a.Title)
		for _, h := range a.Headers {
			headers[h.Name] = append(headers[h.Name], h)
		}
		media := mediaType(a.Example.Header.Get("Content-Type"))
		if media == "" {
			continue
		}
		m, ok := r.Content[media]
		if !ok {
			m.Examples = map[string]openAPIExample{}
		}
		value, isJSON := a.Example.decoded()
		if isJSON {
			m.Schema = schemaRef(answerSchema)
		} else {
			value = string(a.Example.Body)
		}
		raw, _ := json.Marshal(value) // it was decoded from JSON, or is a string
		m.Examples[a.Situation.String()] = openAPIExample{Summary: a.Title, Value: raw}
		r.Content[media] = m
	}
	for name, all := range headers {
		h := all[0]
		for _, other := range all[1:] {
			h.Values = append(slices.Clone(h.Values), other.Values...)
			h.Always = h.Always && other.Always
		}
		h.Always = h.Always && len(all) == len(group)
		r.Headers[name] = h.openAPI()
	}
	r.Description = strings.Join(titles, "; ")
	return r
}

func (h *PolicyHeader) openAPI() openAPIHeader {
	s := &jsonSchema{Type: "string", Enum: slices.Compact(slices.Sorted(slices.Values(h.Values)))}
	if h.Name == "Retry-After" {
		s = &jsonSchema{Type: "integer", Minimum: 1}
	}
	return openAPIHeader{Description: h.Description, Required: h.Always, Schema: s}
}

// answerSchema returns the schema of the problem responses, or nil if none is
// JSON.
func (p *Policy) answerSchema() *jsonSchema {
	var documents []any
	for _, a := range p.Answers {
		for _, r := range []*Response{&a.Example, &a.bare} {
			if v, ok := r.decoded(); ok {
				documents = append(documents, v)
			}
		}
	}
	if documents == nil {
		return nil
	}
	return schemaOf(documents)
}

func (p *Policy) openAPIPolicy() openAPIPolicy {
	x := openAPIPolicy{
		Methods: p.Methods, ForbiddenMethods: p.ForbiddenMethods,
		ValidFor: p.Scope, BelongsTo: p.Extent, Compared: p.Fingerprint,
		Retention: p.Retention.Seconds(), UnresolvedRetention: p.UnresolvedRetention.Seconds(), WaitFor: p.WaitFor.Seconds(),
		ServerErrors: p.ServerErrors, ReplayedHeaders: p.ReplayedHeaders,
	}
	x.Key.In, x.Key.Name = "header", p.Header
	if p.Member != "" {
		x.Key.In, x.Key.Name = "body", p.Member
	}
	x.Key.Required, x.Key.Syntax, x.Key.MinLength, x.Key.MaxLength = p.Required, p.KeySyntax, p.MinLength, p.MaxLength
	for _, a := range p.Answers {
		x.Answers = append(x.Answers, openAPIAnswer{a.Situation.String(), a.Status, a.Type, a.Title, a.RetryAfter})
	}
	return x
}
