// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var aQuery = regexp.MustCompile("(?ms)^```logs-insights\n(.*?)^```$")

// Queries returns the queries of CloudWatch Logs Insights on a page.
func Queries(page string) (queries []string) {
	for _, q := range aQuery.FindAllStringSubmatch(page, -1) {
		queries = append(queries, q[1])
	}
	return queries
}

// Insights evaluates a query of CloudWatch Logs Insights, which LocalStack does not
// have, as far as the pages use its language: fields, a filter of comparisons that are
// joined by or, a pattern for a field, counts with the last value of a field, and an order,
// which it ignores.
func Insights(t testing.TB, query string, lines []string) (rows []string) {
	t.Helper()
	var filter, shown, counted, parsed, example string
	var pattern *regexp.Regexp
	for _, clause := range strings.Split(strings.ReplaceAll(query, "\n", " "), " | ") {
		switch verb, rest, _ := strings.Cut(strings.TrimSpace(clause), " "); verb {
		case "filter":
			filter = rest
		case "fields":
			shown = rest
		case "stats":
			var made string
			made, counted, _ = strings.Cut(rest, " by ")
			if latest := aLatest.FindStringSubmatch(made); latest != nil {
				example = latest[1]
			}
		case "parse":
			parsed, rest, _ = strings.Cut(rest, " ")
			pattern = regexp.MustCompile(strings.Trim(strings.TrimSpace(rest), "/"))
		case "sort":
		default:
			t.Fatalf("unknown clause %q", clause)
		}
	}
	counts, examples := map[string]int{}, map[string]string{}
	for _, line := range lines {
		members := map[string]any{}
		json.Unmarshal([]byte(line), &members) // an error: the line has no fields but these
		members["@message"] = line
		if !slices.ContainsFunc(strings.Split(filter, " or "), func(c string) bool { return meets(t, c, members) }) {
			continue
		}
		if pattern != nil {
			if m := pattern.FindStringSubmatch(fmt.Sprint(members[parsed])); m != nil {
				members[pattern.SubexpNames()[1]] = m[1]
			}
		}
		var row []string
		for _, name := range strings.Split(shown+counted, ",") {
			if value, is := members[strings.TrimSpace(name)]; is {
				row = append(row, fmt.Sprintf("%s=%v", strings.TrimSpace(name), value))
			}
		}
		group := strings.Join(row, " ")
		counts[group]++
		if value, is := members[example]; is {
			examples[group] = fmt.Sprintf(" example=%v", value)
		}
	}
	for group, n := range counts {
		rows = append(rows, fmt.Sprintf("%d %s%s", n, group, examples[group]))
	}
	slices.Sort(rows)
	return rows
}

var aLatest = regexp.MustCompile(`latest\((\w+)\)`)

var comparison = regexp.MustCompile(`^\s*(@?\w+) (=|like) "(.*)"\s*$`)

func meets(t testing.TB, condition string, members map[string]any) bool {
	t.Helper()
	c := comparison.FindStringSubmatch(condition)
	if c == nil {
		t.Fatalf("unknown condition %q", condition)
	}
	value, is := members[c[1]]
	if c[2] == "=" {
		return is && fmt.Sprint(value) == c[3]
	}
	return is && strings.Contains(fmt.Sprint(value), c[3])
}
