// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

// openAPIOf renders a policy as an OpenAPI document.
func openAPIOf(p *describe.Policy) []byte {
	d := openAPI{
		OpenAPI: "3.1.0",
		Info: openAPIInfo{Title: "Idempotency keys", Version: "1.0.0", Description: fmt.Sprintf(
			"A request with %s is executed once: repeated with the same key, it gets the response of the first one. "+
				"An outcome is stored for %s. Refer to these components from the operations with %s.",
			carrier(p), period(p.Retention), strings.Join(p.Methods, ", "))},
		Components: openAPIComponents{
			Parameters: parameters(p),
			Responses:  responses(p),
			Headers:    map[string]openAPIHeader{},
			Schemas:    map[string]*jsonSchema{keySchema: schemaOfKey(p)},
		},
		Policy: extension(p),
	}
	if s := schemaOfAnswers(p); s != nil {
		d.Components.Schemas[answerSchema] = s
	}
	for _, h := range p.AddedHeaders {
		d.Components.Headers[h.Name] = headerOf(&h)
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

// schemaOfKey describes the value that carries the key. In a body that value is
// the key itself, so only there it has a maximum length.
func schemaOfKey(p *describe.Policy) *jsonSchema {
	s := &jsonSchema{
		Type:        "string",
		Description: fmt.Sprintf("%s; the key itself has %s characters", p.KeySyntax, lengths(p)),
		Pattern:     p.KeyPattern, MinLength: p.MinLength,
	}
	if p.KeyExample != "" {
		s.Examples = []string{p.KeyExample}
	}
	if p.Field != "" {
		s.MaxLength = p.MaxLength
	}
	return s
}

func parameters(p *describe.Policy) map[string]openAPIParameter {
	all := map[string]openAPIParameter{}
	if p.Header != "" {
		all["IdempotencyKey"] = openAPIParameter{
			Name: p.Header, In: "header", Required: p.Required, Schema: schemaRef(keySchema),
			Description: fmt.Sprintf(
				"A key that the client chooses, new for each operation. It is valid for %s, and belongs to %s. "+
					"Two requests with one key are the same if these are equal: %s. The outcome is stored for %s.",
				p.Scope, p.Extent, p.Fingerprint, period(p.Retention)),
		}
	}
	if p.Digest {
		all["ContentDigest"] = openAPIParameter{
			Name: "Content-Digest", In: "header", Required: true, Schema: &jsonSchema{Type: "string"},
			Description: "A sha-256 or sha-512 digest of the body (RFC 9530).",
		}
	}
	return all
}

// responses returns one response for each status, and one for methods
// whose requests must not have a key.
func responses(p *describe.Policy) map[string]openAPIResponse {
	groups := map[string][]describe.Answer{}
	for _, a := range p.Answers {
		name := fmt.Sprintf("Idempotency%d", a.Status)
		if a.Situation == lambdahttp.KeyNotAllowed.String() {
			name = "IdempotencyKeyNotAllowed"
		}
		groups[name] = append(groups[name], a)
	}
	all := make(map[string]openAPIResponse, len(groups))
	for name, group := range groups {
		all[name] = responseOf(group)
	}
	return all
}

func responseOf(group []describe.Answer) openAPIResponse {
	var titles []string
	r := openAPIResponse{Headers: map[string]openAPIHeader{}, Content: map[string]openAPIMediaType{}}
	headers := map[string][]describe.Header{}
	for _, a := range group {
		titles = append(titles, a.Title)
		for _, h := range a.Headers {
			headers[h.Name] = append(headers[h.Name], h)
		}
		media := mediaType(&a.Example)
		if media == "" {
			continue
		}
		m, ok := r.Content[media]
		if !ok {
			m.Examples = map[string]openAPIExample{}
		}
		value, isJSON := decoded(&a.Example)
		if isJSON {
			m.Schema = schemaRef(answerSchema)
		} else {
			value = string(a.Example.Body)
		}
		raw, _ := json.Marshal(value) // it was decoded from JSON, or is a string
		m.Examples[a.Situation] = openAPIExample{Summary: a.Title, Value: raw}
		r.Content[media] = m
	}
	for name, all := range headers {
		h := all[0]
		for _, other := range all[1:] {
			h.Values = append(slices.Clone(h.Values), other.Values...)
			h.Always = h.Always && other.Always
		}
		h.Always = h.Always && len(all) == len(group)
		r.Headers[name] = headerOf(&h)
	}
	r.Description = strings.Join(titles, "; ")
	return r
}

func headerOf(h *describe.Header) openAPIHeader {
	s := &jsonSchema{Type: "string", Enum: slices.Compact(slices.Sorted(slices.Values(h.Values)))}
	if h.Name == "Retry-After" {
		s = &jsonSchema{Type: "integer", Minimum: 1}
	}
	return openAPIHeader{Description: h.Description, Required: h.Always, Schema: s}
}

// schemaOfAnswers returns the schema of the problem responses, or nil if none is
// JSON.
func schemaOfAnswers(p *describe.Policy) *jsonSchema {
	var documents []any
	for _, a := range p.Answers {
		for _, r := range []*describe.Response{&a.Example, &a.Minimal} {
			if v, ok := decoded(r); ok {
				documents = append(documents, v)
			}
		}
	}
	if documents == nil {
		return nil
	}
	return schemaOf(documents)
}

func extension(p *describe.Policy) openAPIPolicy {
	x := openAPIPolicy{
		Methods: p.Methods, ForbiddenMethods: p.ForbiddenMethods,
		ValidFor: p.Scope, BelongsTo: p.Extent, Compared: p.Fingerprint,
		Retention: p.Retention.Seconds(), UnresolvedRetention: p.UnresolvedRetention.Seconds(), WaitFor: p.WaitFor.Seconds(),
		ServerErrors: p.ServerErrors, ReplayedHeaders: p.ReplayedHeaders, OmittedHeaders: p.OmittedHeaders,
	}
	x.Key.In, x.Key.Name = "header", p.Header
	if p.Field != "" {
		x.Key.In, x.Key.Name = "body", p.Field
	}
	x.Key.Required, x.Key.Syntax, x.Key.MinLength, x.Key.MaxLength = p.Required, p.KeySyntax, p.MinLength, p.MaxLength
	for _, a := range p.Answers {
		x.Answers = append(x.Answers, openAPIAnswer{a.Situation, a.Status, a.Type, a.Title, a.RetryAfter})
	}
	return x
}

// What follows is the part of OpenAPI 3.1.0 that a policy needs, in the order of
// the specification's section 4.8.

type openAPI struct {
	OpenAPI    string            `json:"openapi"`
	Info       openAPIInfo       `json:"info"`
	Components openAPIComponents `json:"components"`
	Policy     openAPIPolicy     `json:"x-idempotency-policy"` // for programs
}

type openAPIInfo struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type openAPIComponents struct {
	Parameters map[string]openAPIParameter `json:"parameters,omitempty"`
	Responses  map[string]openAPIResponse  `json:"responses"`
	Headers    map[string]openAPIHeader    `json:"headers"`
	Schemas    map[string]*jsonSchema      `json:"schemas"`
}

type openAPIParameter struct {
	Name        string      `json:"name"`
	In          string      `json:"in"`
	Required    bool        `json:"required"`
	Description string      `json:"description"`
	Schema      *jsonSchema `json:"schema"`
}

type openAPIResponse struct {
	Description string                      `json:"description"`
	Headers     map[string]openAPIHeader    `json:"headers,omitempty"`
	Content     map[string]openAPIMediaType `json:"content,omitempty"`
}

type openAPIHeader struct {
	Description string      `json:"description,omitempty"`
	Required    bool        `json:"required,omitempty"`
	Schema      *jsonSchema `json:"schema"`
}

type openAPIMediaType struct {
	Schema   *jsonSchema               `json:"schema,omitempty"`
	Examples map[string]openAPIExample `json:"examples"`
}

type openAPIExample struct {
	Summary string          `json:"summary"`
	Value   json.RawMessage `json:"value"`
}

// openAPIPolicy contains what OpenAPI cannot express. Durations are in seconds.
type openAPIPolicy struct {
	Key struct {
		In        string `json:"in"` // "header" or "body"
		Name      string `json:"name"`
		Required  bool   `json:"required"`
		Syntax    string `json:"syntax"`
		MinLength int    `json:"minLength"`
		MaxLength int    `json:"maxLength"`
	} `json:"key"`
	Methods             []string        `json:"methods"`
	ForbiddenMethods    []string        `json:"forbiddenMethods,omitempty"`
	ValidFor            string          `json:"validFor"`
	BelongsTo           string          `json:"belongsTo"`
	Compared            string          `json:"compared"`
	Retention           float64         `json:"retention"`
	UnresolvedRetention float64         `json:"unresolvedRetention,omitempty"` // absent: until resolved
	WaitFor             float64         `json:"waitFor,omitempty"`
	ServerErrors        string          `json:"serverErrors"`
	ReplayedHeaders     []string        `json:"replayedHeaders"` // "*": all but the omitted ones
	OmittedHeaders      []string        `json:"omittedHeaders,omitempty"`
	Answers             []openAPIAnswer `json:"answers"`
}

type openAPIAnswer struct {
	Situation  string `json:"situation"`
	Status     int    `json:"status"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	RetryAfter bool   `json:"retryAfter"`
}

// jsonSchema is the part of JSON Schema 2020-12 that a policy needs.
type jsonSchema struct {
	Ref         string                 `json:"$ref,omitempty"`
	Type        string                 `json:"type,omitempty"`
	Description string                 `json:"description,omitempty"`
	Pattern     string                 `json:"pattern,omitempty"`
	MinLength   int                    `json:"minLength,omitempty"`
	MaxLength   int                    `json:"maxLength,omitempty"`
	Minimum     int                    `json:"minimum,omitempty"`
	Enum        []string               `json:"enum,omitempty"`
	Items       *jsonSchema            `json:"items,omitempty"`
	Properties  map[string]*jsonSchema `json:"properties,omitempty"`
	Required    []string               `json:"required,omitempty"`
	Examples    []string               `json:"examples,omitempty"`
}

// schemaOf returns a schema for the documents. It is derived from what
// [lambdahttp.Profile.Render] wrote, because a profile can render any form. A member is
// required if every object has it. If values are of several types, any type is
// allowed.
func schemaOf(documents []any) *jsonSchema {
	var s jsonSchema
	for i, d := range documents {
		if t := jsonType(d); i == 0 {
			s.Type = t
		} else if t != s.Type {
			return &jsonSchema{}
		}
	}
	switch s.Type {
	case "object":
		s.object(documents)
	case "array":
		var all []any
		for _, d := range documents {
			all = append(all, d.([]any)...)
		}
		s.Items = schemaOf(all)
	}
	return &s
}

func (s *jsonSchema) object(documents []any) {
	members := map[string][]any{}
	for _, d := range documents {
		for name, value := range d.(map[string]any) {
			members[name] = append(members[name], value)
		}
	}
	s.Properties = make(map[string]*jsonSchema, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		s.Properties[name] = schemaOf(members[name])
		if len(members[name]) == len(documents) {
			s.Required = append(s.Required, name)
		}
	}
}

// jsonType returns the JSON type of a decoded value, or "" for other Go types.
func jsonType(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case nil:
		return "null"
	}
	return ""
}

// decoded returns the JSON value of a response's body. It returns false if the
// Content-Type is not JSON (RFC 6839, section 3.1) or the body is invalid.
func decoded(r *describe.Response) (v any, ok bool) {
	media := mediaType(r)
	isJSON := media == "application/json" || strings.HasSuffix(media, "+json")
	return v, isJSON && json.Unmarshal(r.Body, &v) == nil
}

// mediaType returns the media type of a response in lower case, without
// parameters.
func mediaType(r *describe.Response) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}
