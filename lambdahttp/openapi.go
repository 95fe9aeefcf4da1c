package lambdahttp

import "encoding/json"

// This file contains the part of OpenAPI 3.1.0 that a policy needs, in the
// order of the specification's section 4.8.

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
	ReplayedHeaders     []string        `json:"replayedHeaders"`
	Answers             []openAPIAnswer `json:"answers"`
}

type openAPIAnswer struct {
	Situation  string `json:"situation"`
	Status     int    `json:"status"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	RetryAfter bool   `json:"retryAfter"`
}
