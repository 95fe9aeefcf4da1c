// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector would distort the measurement, so these limits are checked
// without it (make test-cost).

package canonical_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/kit"
)

// The canonical form of every shape costs at most three times the time in which
// encoding/json decodes it, and at most 50 times the time in which encoding/json
// only checks its syntax. The second limit is for numbers that take encoding/json
// 20 µs and more. Four times the size costs at most 12 times the time: quadratic time
// would be 16 times.
func TestLimits(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		t.Run(name, func(t *testing.T) {
			for size, turns := range map[int]int{32 << 10: 30, 2 << 20: 3} {
				part, all := []byte(shapes[name](size/4)), []byte(shapes[name](size))
				kit.Within(t, func() (string, bool) {
					took := kit.Quickest(t, turns, 1, form(t, all), decoded(all), func() { json.Valid(all) }, form(t, part))
					return fmt.Sprintf("%d bytes in %s, decoded in %s, checked in %s; %d bytes in %s", len(all), took[0], took[1], took[2], len(part), took[3]),
						took[0] <= 3*took[1] && took[0] <= 50*took[2] && took[0] <= 12*took[3]
				})
			}
		})
	}
}

// Members around others that move are moved once, and not once for each level: 3,000
// levels around 64 KB take at most 6 times as long as levels that are sorted. They would
// take some 25 times as long.
func TestDeepMembersMoveOnce(t *testing.T) {
	deep := []byte(around(3_000, 64<<10))
	sorted, err := canonical.JSON(deep)
	if err != nil {
		t.Fatal(err)
	}
	kit.Within(t, func() (string, bool) {
		took := kit.Quickest(t, 5, 1, form(t, deep), form(t, sorted))
		return fmt.Sprintf("unsorted in %s, sorted in %s", took[0], took[1]), took[0] <= 6*took[1]
	})
}

// A document takes little more memory than its form. One with members that have to be
// sorted takes up to 14 times its size.
func TestMemory(t *testing.T) {
	for shape, limit := range map[string]float64{"records": 1.1, "pairs": 1.1, "deep around a text": 4, "deep unsorted objects": 14, "shuffled members": 14} {
		doc := []byte(shapes[shape](6 << 20))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := canonical.Use(doc, func([]byte) {}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(doc)); times > limit || times < 0.9 {
			t.Errorf("%s: %.2f times the size, want at most %.1f", shape, times, limit)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		for _, size := range []int{1 << 10, 32 << 10, 1 << 20, 6 << 20} {
			doc := []byte(shapes[name](size))
			for _, side := range []struct {
				name string
				do   func()
			}{{"once", form(b, doc)}, {"encoding-json", decoded(doc)}} {
				b.Run(fmt.Sprintf("shape=%s/bytes=%d/side=%s", strings.ReplaceAll(name, " ", "-"), size, side.name), func(b *testing.B) {
					b.SetBytes(int64(len(doc)))
					b.ReportAllocs()
					for b.Loop() {
						side.do()
					}
				})
			}
		}
	}
}

func form(tb testing.TB, doc []byte) func() {
	return func() {
		if _, err := canonical.JSON(doc); err != nil {
			tb.Fatal(err)
		}
	}
}

// decoded decodes doc by encoding/json, which reports a number beyond the largest
// double after it has decoded the rest.
func decoded(doc []byte) func() {
	return func() {
		var v any
		_ = json.Unmarshal(doc, &v)
	}
}

const maxDepth = 9_999

// shapes are the extremes of what a document can consist of, by its size in bytes.
// Those that take encoding/json seconds are smaller.
var shapes = map[string]func(size int) string{
	"one text":          func(size int) string { return `"` + strings.Repeat("x", size) + `"` },
	"text of wide":      func(size int) string { return `"` + strings.Repeat("é€😀", size/9) + `"` },
	"text of escapes":   func(size int) string { return `"` + strings.Repeat(`\u00e9\n\ud83d\ude00\/`, size/22) + `"` },
	"text of quotes":    func(size int) string { return `"` + strings.Repeat(`\"\\`, size/4) + `"` },
	"white space":       func(size int) string { return strings.Repeat(" ", size) + "1" },
	"texts":             func(size int) string { return list(size, func(int) string { return `""` }) },
	"one number":        func(size int) string { return strings.Repeat("7", size) },
	"one fraction":      func(size int) string { return "0." + strings.Repeat("0", size) + "7" },
	"integers":          func(size int) string { return list(size, strconv.Itoa) },
	"amounts":           func(size int) string { return list(size, func(i int) string { return strconv.Itoa(i) + ".10" }) },
	"doubles":           func(size int) string { return list(size, double) },
	"halves of doubles": func(size int) string { return list(size, func(int) string { return "9007199254740993" }) },
	"small doubles":     func(size int) string { return list(size/16, func(i int) string { return strconv.Itoa(i) + "e-320" }) },
	"too large doubles": func(size int) string { return list(size/16, func(int) string { return "2e308" }) },
	"long decimals": func(size int) string {
		return list(size, func(i int) string { return strconv.Itoa(i) + "." + strings.Repeat("7", 20) })
	},
	"long exponents": func(size int) string { return list(size, func(int) string { return "1e-999999999999999999" }) },
	"empty objects":  func(size int) string { return list(size, func(int) string { return "{}" }) },
	"deep arrays": func(size int) string {
		return list(size, func(int) string { return nested(maxDepth-1, "[", "", "]") })
	},
	"deep unsorted objects": func(size int) string {
		return list(size, func(int) string { return nested(maxDepth-1, `{"b":`, "1", `,"a":1}`) })
	},
	"deep around a text": func(size int) string { return around(maxDepth, size) },
	"deep after texts": func(size int) string {
		return nested(maxDepth, `{"b":"`+strings.Repeat("x", size/maxDepth)+`","a":`, "1", "}")
	},
	"records": func(size int) string {
		return list(size, func(i int) string {
			return fmt.Sprintf(`{"id":%d,"name":"item %d","price":%d.50,"tags":["a","b"],"active":true}`, i, i, i)
		})
	},
	"pairs":   func(size int) string { return list(size, func(int) string { return `{"b":1,"a":2}` }) },
	"members": func(size int) string { return object(size, func(i int) string { return fmt.Sprintf("%08d", i) }) },
	"reversed members": func(size int) string {
		return object(size, func(i int) string { return fmt.Sprintf("%08d", 99_999_999-i) })
	},
	"shuffled members": func(size int) string { return object(size, shuffled) },
	"members of a prefix": func(size int) string {
		return object(size, func(i int) string { return strings.Repeat("x", 30) + shuffled(i) })
	},
	"long names": func(size int) string {
		return object(size, func(i int) string { return strings.Repeat("x", 1000) + shuffled(i) })
	},
	"escaped names": func(size int) string { return object(size, func(i int) string { return `\n` + shuffled(i) }) },
	"wide names":    func(size int) string { return object(size, func(i int) string { return "\ufb33" + shuffled(i) }) },
}

func list(size int, item func(i int) string) string { return "[" + repeat(size, item) + "]" }

func object(size int, name func(i int) string) string {
	return "{" + repeat(size, func(i int) string { return `"` + name(i) + `":0` }) + "}"
}

// repeat returns items of about the given size, with commas between them.
func repeat(size int, item func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	return b.String()
}

func nested(depth int, open, inner, end string) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}

// around returns a text that is nested in objects whose members are not sorted.
func around(depth, size int) string {
	return nested(depth, `{"b":`, `"`+strings.Repeat("x", size)+`"`, `,"a":1}`)
}

// shuffled returns distinct texts in no order.
func shuffled(i int) string { return strconv.FormatUint(uint64(uint32(i)*2654435761), 36) }

// double returns a double with all its digits.
func double(i int) string {
	return strconv.FormatFloat(rand.New(rand.NewPCG(1, uint64(i))).Float64(), 'g', -1, 64)
}
