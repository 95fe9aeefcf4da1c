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
	all := parameters(multi, single)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, v := range all[name] {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(name)
			b.WriteByte('=')
			b.WriteString(v)
		}
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
