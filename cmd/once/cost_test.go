// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The price of a million requests is the one that docs/reports/cost.md measures.
func TestCostAgreesWithMeasurements(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reports/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := func(request, declared string) float64 {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(request) + ` \| ` + regexp.QuoteMeta(declared) + ` \|.* ([0-9.]+) \|$`).FindSubmatch(page)
		if row == nil {
			t.Fatalf("docs/reports/cost.md has no row %q, %q", request, declared)
		}
		v, err := strconv.ParseFloat(string(row[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	price := func(s service) (usd float64) {
		s.Requests = 1e6
		for _, p := range s.bill() {
			if !strings.HasPrefix(p.What, "storage") {
				usd += p.USD
			}
		}
		return usd
	}
	retried := func(s service) float64 {
		with := s
		with.Retries = 1
		return price(with) - price(s)
	}
	for _, c := range []struct {
		request, declared string
		computed          float64
	}{
		{"first request", "any", price(service{})},
		{"replay", "either", retried(service{})},
		{"first request, result of 4 KB", "`Rerun`", price(service{Result: 4096})},
		{"replay of 4 KB", "either", retried(service{Result: 4096})},
		{"first request, result of 300 KB", "`Rerun`", price(service{Result: 300 << 10})},
		{"replay of 300 KB", "either", retried(service{Result: 300 << 10})},
		{"first request, result of 6 MB", "`Rerun`", price(service{Result: 6 << 20})},
		{"replay of 6 MB", "`Rerun`", retried(service{Result: 6 << 20})},
		{"each `Step`, while the record has less than 1 KB", "`Resume`", price(service{Steps: 1}) - price(service{})},
		{"first request, `Commit` with one item", "any", price(service{Commit: 1})},
		{"a run of `Reconciler`, nothing due", "`Reconcile`", price(service{Reconcile: month / 1e6}) - price(service{})},
	} {
		if want := measured(c.request, c.declared); math.Abs(c.computed-want) > 0.005*want {
			t.Errorf("%s, %s: computed $%.3f, measured $%.3f", c.request, c.declared, c.computed, want)
		}
	}
	unknown := price(service{Unknown: 1}) - price(service{})
	if want := measured("first request that ends unknown", "any") - measured("first request", "any") +
		measured("and each unknown record that it resolves", "`Reconcile`"); math.Abs(unknown-want) > 0.001 {
		t.Errorf("an unknown outcome: computed $%.3f, measured $%.3f", unknown, want)
	}
}

// A scan reads what is stored, at half a read unit for 4 KB.
func TestCostOfScans(t *testing.T) {
	t.Parallel()
	s := service{Requests: 1e10, Retention: 24 * time.Hour, Scan: time.Hour}
	var scan, storage position
	for _, p := range s.bill() {
		switch {
		case strings.HasPrefix(p.What, "scans"):
			scan = p
		case strings.HasPrefix(p.What, "storage"):
			storage = p
		}
	}
	if got := fmt.Sprintf("%.0f GB", storage.Bytes/1e9); got != "154 GB" {
		t.Errorf("10,000,000,000 requests a month, kept for 25 h, are %s", got)
	}
	if want := 730 * storage.Bytes / 4096 / 2 * 0.125e-6; math.Abs(scan.USD-want) > 0.01 {
		t.Errorf("a scan every hour costs $%.2f, want $%.2f", scan.USD, want)
	}
}
