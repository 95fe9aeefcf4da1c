package dynamostore

import (
	"fmt"
	"testing"

	"github.com/once-lambda/once/idempotent"
)

// These pairs must hold for ever: a version with other keys would hide records
// from the reconcilers of all other versions. They were computed with another
// implementation of CRC-32.
func TestIndexKey_Golden(t *testing.T) {
	t.Parallel()
	for pk, want := range map[string]string{
		"charge#key": "u#42",
		"a":          "u#03",
		"charge#wQvdHla1nzuv1SGeppP843Fmud3BrcT3MXfzPOAh-tc": "u#23",
		"chärge#x": "u#30",
	} {
		if got := indexKey(pk, false); got != want {
			t.Errorf("indexKey(%q) = %q, want %q", pk, got, want)
		}
	}
}

func TestIndexKey_Spreads(t *testing.T) {
	t.Parallel()
	const perShard = 1000
	count := map[string]int{}
	for i := range shards * perShard {
		key := idempotent.Key{Operation: "charge", Scope: "tenant", ID: fmt.Sprint(i)}
		count[indexKey(string(key.RecordID()), false)]++
	}
	for i := range shards {
		// Five standard deviations of a uniform choice.
		if n := count[fmt.Sprintf("u#%02d", i)]; n < perShard-160 || n > perShard+160 {
			t.Errorf("shard %02d has %d records, want about %d", i, n, perShard)
		}
	}
	if len(count) != shards {
		t.Errorf("%d shards, want %d", len(count), shards)
	}
}
