// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// docLink is a name in brackets, with or without its package.
var docLink = regexp.MustCompile(`(?:^|\W)\[\*?(?:([a-z]\w*)\.)?([A-Z]\w*)(?:\.([A-Z]\w*))?\]`)

// Every link in a comment leads to a name that exists. The documentation shows
// other links as plain text with brackets.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{
		"idempotent", "idempotent/driver", "idempotent/event", "idempotent/idempotenttest", "idempotent/memstore",
		"lambdahttp", "lambdahttp/policy", "lambdabatch", "lambdadurable", "idempotencyclient", "dynamostore", "dynamostore/dynamotest", "boltstore",
		"telemetry/emf", "telemetry/audit", "telemetry/otelonce", "oncevet", "infra", "examples/kmsseal", "examples/redisstore",
	} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			p, seen := loadPackage(t, dir), 0
			for _, file := range p.files {
				for _, comment := range file.Comments {
					for _, link := range docLink.FindAllStringSubmatch(comment.Text(), -1) {
						seen++
						if !p.has(link[1], link[2], link[3]) {
							t.Errorf("%s: %s leads nowhere", p.fset.Position(comment.Pos()), strings.TrimSpace(link[0]))
						}
					}
				}
			}
			if seen == 0 {
				t.Error("no link was found")
			}
		})
	}
}

// has reports whether the package, or one that it imports, declares the name and
// its member.
func (s *sources) has(pkg, name, member string) bool {
	scope := s.pkg.Scope()
	if pkg != "" {
		scope = nil
		for _, imported := range s.pkg.Imports() {
			if imported.Name() == pkg && imported.Scope().Lookup(name) != nil { // two can have that name
				scope = imported.Scope()
			}
		}
	}
	if scope == nil || scope.Lookup(name) == nil {
		return false
	}
	found, _, _ := types.LookupFieldOrMethod(scope.Lookup(name).Type(), true, s.pkg, member)
	return member == "" || found != nil
}
