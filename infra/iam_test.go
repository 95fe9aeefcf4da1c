// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"encoding/json"
	"fmt"
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

// allows reports whether the statements allow a request: one allows it, and none
// denies it.
func allows(policy []statement, r request) (allowed bool, err error) {
	for _, s := range policy {
		matches, err := s.matches(r)
		switch {
		case err != nil:
			return false, err
		case !matches:
		case s.Effect == "Deny":
			return false, nil
		case s.Effect == "Allow":
			allowed = true
		default:
			return false, fmt.Errorf("unknown effect %q", s.Effect)
		}
	}
	return allowed, nil
}

func (s statement) matches(r request) (bool, error) {
	if len(s.Action) == 0 || len(s.Resource) == 0 {
		return false, fmt.Errorf("a statement without actions or resources: %v", s)
	}
	on := func(patterns list, value string) (bool, error) {
		return some(patterns, func(pattern string) (bool, error) { return like(pattern, value) })
	}
	if ok, err := on(lower(s.Action), strings.ToLower(r.action)); !ok || err != nil {
		return false, err
	}
	if ok, err := on(s.Resource, r.resource); !ok || err != nil {
		return false, err
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
	set, test, found := strings.Cut(operator, ":")
	if !found {
		set, test = "", operator
	}
	test, ifExists := strings.CutSuffix(test, "IfExists")
	if test == "Null" {
		return (len(values) == 0) == (want[0] == "true"), nil
	}
	negated := strings.HasPrefix(test, "StringNot")
	one := func(value string) (bool, error) {
		ok, err := some(want, func(pattern string) (bool, error) {
			switch test {
			case "StringEquals", "StringNotEquals":
				plain, err := parse(pattern)
				return slices.EqualFunc(plain, []rune(value), func(t token, r rune) bool { return t.is(r) }), err
			case "StringLike", "StringNotLike":
				return like(pattern, value)
			}
			return false, fmt.Errorf("unknown condition operator %q", operator)
		})
		return ok != negated, err
	}
	switch set {
	case "ForAllValues":
		missed, err := some(values, func(v string) (bool, error) { ok, err := one(v); return !ok, err })
		return !missed, err
	case "ForAnyValue":
		return some(values, one)
	case "":
		if len(values) == 0 {
			return ifExists || negated, nil
		}
		if len(values) > 1 {
			return false, fmt.Errorf("%s on several values", operator)
		}
		return one(values[0])
	}
	return false, fmt.Errorf("unknown condition operator %q", operator)
}

// some reports whether f is true for an element.
func some[S ~[]string](of S, f func(string) (bool, error)) (bool, error) {
	for _, s := range of {
		if ok, err := f(s); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func lower(l list) (lowered list) {
	for _, s := range l {
		lowered = append(lowered, strings.ToLower(s))
	}
	return lowered
}

// token is a character of a pattern, or a wildcard.
type token struct {
	char rune
	wild bool // char is * or ?, and stands for others
}

// is reports whether the token is that character itself. In the operators that
// compare for equality, wildcards have no meaning.
func (t token) is(r rune) bool { return t.char == r }

// parse reads a pattern, in which ${*}, ${?} and ${$} are these characters.
func parse(pattern string) (tokens []token, err error) {
	for rest := []rune(pattern); len(rest) > 0; {
		if len(rest) > 1 && rest[0] == '$' && rest[1] == '{' {
			if len(rest) < 4 || rest[3] != '}' || !strings.ContainsRune("*?$", rest[2]) {
				return nil, fmt.Errorf("unknown policy variable in %q", pattern)
			}
			tokens, rest = append(tokens, token{char: rest[2]}), rest[4:]
			continue
		}
		tokens, rest = append(tokens, token{rest[0], rest[0] == '*' || rest[0] == '?'}), rest[1:]
	}
	return tokens, nil
}

// like matches a pattern with the wildcards * and ?.
func like(pattern, value string) (bool, error) {
	tokens, err := parse(pattern)
	if err != nil {
		return false, err
	}
	// reached[i]: the tokens so far match the first i characters.
	chars := []rune(value)
	reached := make([]bool, len(chars)+1)
	reached[0] = true
	for _, t := range tokens {
		next := make([]bool, len(chars)+1)
		for i := range next {
			switch {
			case t.wild && t.char == '*':
				next[i] = reached[i] || i > 0 && next[i-1]
			case i > 0:
				next[i] = reached[i-1] && (t.wild || t.is(chars[i-1]))
			}
		}
		reached = next
	}
	return reached[len(chars)], nil
}

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
		{"no statement", `[]`, "dynamodb:GetItem", table, nil, false},
		{"a denial wins", `[{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "dynamodb:GetItem", "Resource": "*"}]`, "dynamodb:GetItem", table, nil, false},
		{"another is denied", `[{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "dynamodb:PutItem", "Resource": "*"}]`, "dynamodb:GetItem", table, nil, true},
		{"a denial whose condition is not met", `[{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": {"StringEquals": {"kms:ViaService": "s3"}}}]`, "dynamodb:GetItem", table, nil, true},
		{"equal", allow(`"StringEquals": {"kms:ViaService": ["a", "b"]}`), "dynamodb:GetItem", table, map[string][]string{"kms:ViaService": {"b"}}, true},
		{"not equal", allow(`"StringEquals": {"kms:ViaService": "a"}`), "dynamodb:GetItem", table, map[string][]string{"kms:ViaService": {"aa"}}, false},
		{"a wildcard where equality is wanted", allow(`"StringEquals": {"kms:ViaService": "*"}`), "dynamodb:GetItem", table, map[string][]string{"kms:ViaService": {"a"}}, false},
		{"missing", allow(`"StringEquals": {"kms:ViaService": "a"}`), "dynamodb:GetItem", table, nil, false},
		{"missing, if it exists", allow(`"StringEqualsIfExists": {"kms:ViaService": "a"}`), "dynamodb:GetItem", table, nil, true},
		{"missing, negated", allow(`"StringNotEquals": {"kms:ViaService": "a"}`), "dynamodb:GetItem", table, nil, true},
		{"negated", allow(`"StringNotLike": {"kms:ViaService": "a*"}`), "dynamodb:GetItem", table, map[string][]string{"kms:ViaService": {"ab"}}, false},
		{"two conditions, one is met", allow(`"StringEquals": {"a": "1", "b": "2"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"1"}, "b": {"3"}}, false},
		{"every key", allow(`"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["a#?", "b#*"]}`), "dynamodb:BatchGetItem", table, keys("a#1", "b#", "b#22"), true},
		{"every key but one", allow(`"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "a#?"}`), "dynamodb:BatchGetItem", table, keys("a#1", "a#22"), false},
		{"no key meets the conditions of every key", allow(`"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "a#?"}`), "dynamodb:GetItem", table, nil, true},
		{"a key is wanted", allow(`"Null": {"dynamodb:LeadingKeys": "false"}`), "dynamodb:GetItem", table, nil, false},
		{"a key is wanted and there", allow(`"Null": {"dynamodb:LeadingKeys": "false"}`), "dynamodb:GetItem", table, keys("a"), true},
		{"no key is wanted", allow(`"Null": {"dynamodb:LeadingKeys": "true"}`), "dynamodb:GetItem", table, nil, true},
		{"some key", allow(`"ForAnyValue:StringEquals": {"dynamodb:LeadingKeys": "a"}`), "dynamodb:GetItem", table, keys("b", "a"), true},
		{"some key, and there is none", allow(`"ForAnyValue:StringEquals": {"dynamodb:LeadingKeys": "a"}`), "dynamodb:GetItem", table, nil, false},
		{"an escaped wildcard", allow(`"StringLike": {"a": "x${*}${?}${$}"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"x*?$"}}, true},
		{"an escaped wildcard is none", allow(`"StringLike": {"a": "x${*}"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"xy"}}, false},
		{"? is one character", allow(`"StringLike": {"a": "?"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"ä"}}, true},
		{"? is not nothing", allow(`"StringLike": {"a": "x?"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"x"}}, false},
		{"* in the middle", allow(`"StringLike": {"a": "x*y*z"}`), "dynamodb:GetItem", table, map[string][]string{"a": {"xyyz"}}, true},
	} {
		got, err := decide(t, row.policy, request{row.action, row.resource, row.context})
		if err != nil || got != row.want {
			t.Errorf("%s: got %v (%v), want %v", row.name, got, err, row.want)
		}
	}
	for _, condition := range []string{
		`"NumericEquals": {"a": "1"}`, `"ForAllValues:Bool": {"a": "true"}`, `"ForEachValue:StringLike": {"a": "1"}`, `"StringLike": {"a": "${aws:username}"}`,
	} {
		if got, err := decide(t, allow(condition), request{"dynamodb:GetItem", table, map[string][]string{"a": {"1"}}}); err == nil {
			t.Errorf("%s: got %v, want an error", condition, got)
		}
	}
	if _, err := decide(t, `[{"Effect": "Allow", "NotAction": "a", "Resource": "*"}]`, request{action: "b", resource: table}); err == nil {
		t.Error("a statement without actions: got no error")
	}
}

func decide(t *testing.T, policy string, r request) (bool, error) {
	t.Helper()
	var parsed []statement
	decode(t, policy, &parsed)
	return allows(parsed, r)
}
