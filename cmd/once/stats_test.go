package main

import (
	"strings"
	"testing"

	"github.com/once-lambda/once/dynamostore"
)

func TestStats(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.once("stats").ok().golden("stats")
	d.once("stats", "--json").ok().golden("stats-json")
	newDesk(t).once("stats").ok().golden("stats-empty")
}

// For a table the output contains the cost of the read.
func TestStats_Price(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &env{world: &world{stdout: &out, now: newDesk(t).world.now}}
	s := &stats{Records: 1}
	s.cost(dynamostore.ScanProgress{Items: 1_234_567, ReadUnits: 8_000_000.5})
	if err := (&statsCmd{e}).print(s); err != nil {
		t.Fatal(err)
	}
	if want := "this read   1,234,567 items, 8000000.5 read units, about $1.000000 (on demand, us-east-1)\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q", out.String())
	}
}
