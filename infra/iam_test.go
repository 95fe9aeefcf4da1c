// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// These functions decide as IAM does (IAM user guide, "Policy evaluation logic"
// and "IAM JSON policy elements: Condition operators"), for the elements that the
// constructs use. Anything else is an error, so that no condition is overlooked.

// statement is a statement of a policy whose functions of CloudFormation are
// resolved.
type statement struct {
	Effect           string
	Action, Resource list
	Condition        map[string]map[string]list // by operator and key
}

// list is a string, or a list of them.
type list []string

func (l *list) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		*l = list{""}
		return json.Unmarshal(text, &(*l)[0])
	}
	return json.Unmarshal(text, (*[]string)(l))
}

// request is what a caller asks for.
type request struct {
	action, resource string
	context          map[string][]string // a key that is missing is not in the request
}

func (r request) String() string { return fmt.Sprintf("%s on %s, %v", r.action, r.resource, r.context) }

// allows reports whether a statement allows a request. No construct denies.
func allows(policy []statement, r request) (bool, error) {
	for _, s := range policy {
		if allowed, err := s.allows(r); allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

func (s statement) allows(r request) (bool, error) {
	if s.Effect != "Allow" || len(s.Action) == 0 || len(s.Resource) == 0 {
		return false, fmt.Errorf("a statement with another effect, or without actions or resources: %v", s)
	}
	actions := strings.Fields(strings.ToLower(strings.Join(s.Action, " ")))
	for value, patterns := range map[string][]string{strings.ToLower(r.action): actions, r.resource: s.Resource} {
		if ok, err := some(patterns, func(pattern string) (bool, error) { return like(pattern, value) }); !ok || err != nil {
			return false, err
		}
	}
	for operator, keys := range s.Condition {
		for key, want := range keys {
			if ok, err := meets(operator, r.context[key], want); !ok || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// meets evaluates a condition operator on the values of a key in the request.
func meets(operator string, values []string, want list) (bool, error) {
	switch operator {
	case "Null":
		return (len(values) == 0) == (want[0] == "true"), nil
	case "StringEquals":
		if len(values) > 1 {
			return false, fmt.Errorf("%s on several values", operator)
		}
		return len(values) == 1 && slices.Contains(want, values[0]), nil
	case "ForAllValues:StringLike":
		missed, err := some(values, func(value string) (bool, error) {
			ok, err := some(want, func(pattern string) (bool, error) { return like(pattern, value) })
			return !ok, err
		})
		return !missed, err
	}
	return false, fmt.Errorf("unknown condition operator %q", operator)
}

// some reports whether f is true for an element.
func some(of []string, f func(string) (bool, error)) (bool, error) {
	for _, s := range of {
		if ok, err := f(s); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// like matches a pattern with the wildcards * and ?, in which ${*}, ${?} and ${$} are
// these characters.
func like(pattern, value string) (bool, error) {
	text := wildcards.Replace(regexp.QuoteMeta(pattern))
	if strings.Contains(text, `\$\{`) {
		return false, fmt.Errorf("unknown policy variable in %q", pattern)
	}
	return regexp.MustCompile(`(?s)^` + text + `$`).MatchString(value), nil
}

// wildcards makes a regular expression of a quoted pattern.
var wildcards = strings.NewReplacer(`\$\{\*\}`, `\*`, `\$\{\?\}`, `\?`, `\$\{\$\}`, `\$`, `\*`, `.*`, `\?`, `.`)

// The evaluator decides as the examples of the IAM user guide, and refuses what it
// does not know.
func TestEvaluator(t *testing.T) {
	const table = "arn:aws:dynamodb:eu-central-1:123456789012:table/records"
	allow := func(condition string) string {
		return `[{"Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:Batch*"], "Resource": "` + table + `", "Condition": {` + condition + `}}]`
	}
	keys := func(keys ...string) map[string][]string { return map[string][]string{"dynamodb:LeadingKeys": keys} }
	for _, row := range []struct {
		name, policy, action, resource string
		context                        map[string][]string
		want                           bool
	}{
		{"the action", allow(""), "dynamodb:GetItem", table, nil, true},
		{"the action in another case", allow(""), "dynamodb:getitem", table, nil, true},
		{"an action by a wildcard", allow(""), "dynamodb:BatchGetItem", table, nil, true},
		{"another action", allow(""), "dynamodb:PutItem", table, nil, false},
		{"an action that begins in the same way", allow(""), "dynamodb:GetItems", table, nil, false},
		{"another resource", allow(""), "dynamodb:GetItem", table + "s", nil, false},
		{"a resource below", allow(""), "dynamodb:GetItem", table + "/index/recovery", nil, false},
		{"equal", allow(`"StringEquals": {"kms:ViaService": ["a", "b"]}`), "dynamodb:GetItem", table, map[string][]string{"kms:ViaService": {"b"}}, true},
		{"not equal", allow(`"StringEquals": {"kms:ViaService": "a"}`), "dynamodb:GetItem", table, map[string][]string{"kms:ViaService": {"aa"}}, false},
		{"missing", allow(`"StringEquals": {"kms:ViaService": "a"}`), "dynamodb:GetItem", table, nil, false},
		{"two conditions, one is met", allow(`"StringEquals": {"a": "1", "b": "2"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"1"}, "b": {"3"}}, false},
		{"every key", allow(`"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["a#?", "b#*"]}`), "dynamodb:BatchGetItem", table, keys("a#1", "b#", "b#22"), true},
		{"every key but one", allow(`"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "a#?"}`), "dynamodb:BatchGetItem", table, keys("a#1", "a#22"), false},
		{"no key meets the conditions of every key", allow(`"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "a#?"}`), "dynamodb:GetItem", table, nil, true},
		{"a key is wanted", allow(`"Null": {"dynamodb:LeadingKeys": "false"}`), "dynamodb:GetItem", table, nil, false},
		{"a key is wanted and there", allow(`"Null": {"dynamodb:LeadingKeys": "false"}`), "dynamodb:GetItem", table, keys("a"), true},
		{"no key is wanted", allow(`"Null": {"dynamodb:LeadingKeys": "true"}`), "dynamodb:GetItem", table, nil, true},
		{"an escaped wildcard", allow(`"ForAllValues:StringLike": {"a": "x${*}${?}${$}"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"x*?$"}}, true},
		{"an escaped wildcard is none", allow(`"ForAllValues:StringLike": {"a": "x${*}"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"xy"}}, false},
		{"? is one character", allow(`"ForAllValues:StringLike": {"a": "?"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"ä"}}, true},
		{"? is not nothing", allow(`"ForAllValues:StringLike": {"a": "x?"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"x"}}, false},
		{"* in the middle", allow(`"ForAllValues:StringLike": {"a": "x*y*z"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"xyyz"}}, true},
	} {
		got, err := decide(t, row.policy, request{row.action, row.resource, row.context})
		if err != nil || got != row.want {
			t.Errorf("%s: got %v (%v), want %v", row.name, got, err, row.want)
		}
	}
	for _, condition := range []string{
		`"NumericEquals": {"a": "1"}`, `"StringLike": {"a": "1"}`, `"ForAllValues:StringEquals": {"a": "1"}`, `"ForAllValues:StringLike": {"a": "${aws:username}"}`,
	} {
		if got, err := decide(t, allow(condition), request{"dynamodb:GetItem", table, map[string][]string{"a": {"1"}}}); err == nil {
			t.Errorf("%s: got %v, want an error", condition, got)
		}
	}
	for _, policy := range []string{`[{"Effect": "Allow", "NotAction": "a", "Resource": "*"}]`, `[{"Effect": "Deny", "Action": "b", "Resource": "*"}]`} {
		if _, err := decide(t, policy, request{action: "b", resource: table}); err == nil {
			t.Errorf("%s: got no error", policy)
		}
	}
}

func decide(t *testing.T, policy string, r request) (bool, error) {
	t.Helper()
	var parsed []statement
	decode(t, policy, &parsed)
	return allows(parsed, r)
}
