// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

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
