package lambdahttp

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// encodedQuery writes a query from the decoded parameters of an event: sorted by
// name, in the one spelling of [url.Values.Encode]. Two queries that the
// gateway decodes to the same parameters are one; no others are.
func encodedQuery(multi map[string][]string, single map[string]string) string {
	if len(multi) == 0 && len(single) == 0 {
		return ""
	}
	return url.Values(parameters(multi, single)).Encode()
}

// rawQuery writes a query from the parameters of an event that were never
// decoded, sorted by name. A parameter without a value gets an empty one: the
// event does not tell the difference.
func rawQuery(multi map[string][]string, single map[string]string) string {
	if len(multi) == 0 && len(single) == 0 {
		return ""
	}
	type pair struct{ name, value string }
	var space [8]pair
	pairs, size := space[:0], 0
	for name, values := range multi {
		for _, v := range values {
			pairs = append(pairs, pair{name, v})
			size += len(name) + len(v) + 2
		}
	}
	for name, v := range single {
		if _, ok := multi[name]; !ok {
			pairs = append(pairs, pair{name, v})
			size += len(name) + len(v) + 2
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.Grow(size)
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name)
		b.WriteByte('=')
		b.WriteString(p.value)
	}
	return b.String()
}

// parameters returns what an event shows of the query: every value where it has
// them all, else the one.
func parameters(multi map[string][]string, single map[string]string) map[string][]string {
	all, own := multi, false
	for name, v := range single {
		if _, ok := multi[name]; ok {
			continue
		}
		if !own {
			all, own = make(map[string][]string, len(multi)+len(single)), true
			maps.Copy(all, multi)
		}
		all[name] = []string{v}
	}
	return all
}
