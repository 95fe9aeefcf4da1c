// SPDX-License-Identifier: Apache-2.0

package console

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/internal/view"
)

// link is a template for the address of a record elsewhere, such as at the provider.
type link struct{ name, template string }

type links []link

// anchor is a link of one record.
type anchor struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// placeholders are the values of a record that a template can contain, by their names
// in braces.
var placeholders = map[string]func(*view.Record) string{
	"ref":             func(v *view.Record) string { return v.Ref },
	"record":          func(v *view.Record) string { return string(v.Record) },
	"operation":       func(v *view.Record) string { return v.Operation },
	"key_hash":        func(v *view.Record) string { return v.KeyHash },
	"downstream_key":  func(v *view.Record) string { return v.DownstreamKey },
	"downstream_uuid": func(v *view.Record) string { return v.DownstreamUUID },
	"request_id":      func(v *view.Record) string { return v.RequestID },
	"trace_parent":    func(v *view.Record) string { return v.TraceParent },
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// ParseLinks parses the texts of --link.
func ParseLinks(texts []string) (l links, err error) {
	for _, text := range texts {
		name, template, found := strings.Cut(text, "=")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, operate.Usage("invalid --link %q: want NAME=URL, such as provider=https://dashboard.example/search?q={ref}", text)
		}
		if slices.ContainsFunc(l, func(other link) bool { return other.name == name }) {
			return nil, operate.Usage("two --link have the name %q", name)
		}
		for _, p := range placeholder.FindAllString(template, -1) {
			if placeholders[strings.Trim(p, "{}")] == nil {
				return nil, operate.Usage("invalid --link %s: unknown placeholder %s: want one of {%s}", name, p, strings.Join(slices.Sorted(maps.Keys(placeholders)), "}, {"))
			}
		}
		if err := checkTemplate(template); err != nil {
			return nil, operate.Usage("invalid --link %s: %v", name, err)
		}
		l = append(l, link{name, template})
	}
	return l, nil
}

// checkTemplate returns an error unless each address that the template can become is of
// the same host.
func checkTemplate(template string) error {
	plain := placeholder.ReplaceAllString(template, "x")
	u, err := url.Parse(plain)
	switch {
	case strings.ContainsAny(plain, "{}"):
		return operate.Usage("a brace has no partner")
	case err != nil:
		return err
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.User != nil:
		return operate.Usage("want an address that begins with https:// or http:// and a host")
	case !strings.HasPrefix(strings.ToLower(template), strings.ToLower(u.Scheme+"://"+u.Host)):
		return operate.Usage("a placeholder can stand only after the host")
	}
	return nil
}

// of returns the links of a record: those whose values it all has.
func (l links) of(v *view.Record) (list []anchor) {
	for _, one := range l {
		complete := true
		address := placeholder.ReplaceAllStringFunc(one.template, func(p string) string {
			value := placeholders[strings.Trim(p, "{}")](v)
			complete = complete && value != ""
			return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") // in a path, too
		})
		if complete {
			list = append(list, anchor{one.name, address})
		}
	}
	return list
}
