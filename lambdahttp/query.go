package lambdahttp

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// encodedQuery builds a query from the decoded parameters of an event, sorted
// by name, in the spelling of [url.Values.Encode]. Two queries have the same
// result if and only if the gateway decodes them to the same parameters.
func encodedQuery(multi map[string][]string, single map[string]string) string {
	if len(multi) == 0 && len(single) == 0 {
		return ""
	}
	return url.Values(parameters(multi, single)).Encode()
}

// rawQuery builds a query from parameters that the event contains undecoded,
// sorted by name. A parameter without a value gets an empty one: the event does
// not distinguish the two.
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

// parameters returns the query's parameters: all values of each name if the
// event contains them in multi, else the one in single.
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
