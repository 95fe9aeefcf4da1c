// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Results are the figures of one run, as results.json holds them.
type Results struct {
	Run        string            `json:"run"` // the name of all runs together
	Rounds     int               `json:"rounds"`
	Starts     int               `json:"starts"`
	Processor  string            `json:"processor"`
	Processors int               `json:"processors"`
	Versions   map[string]string `json:"versions"`
	Sides      []string          `json:"sides"`

	Runs      []Run                         `json:"runs"`
	Traffic   map[string]map[string]Traffic `json:"traffic"`   // by work and side
	Memory    map[string]float64            `json:"memory"`    // MB, by side
	Ready     map[string]Spread             `json:"ready"`     // milliseconds, by contestant
	Behaviour map[string]map[string]string  `json:"behaviour"` // by scenario and contestant
}

// Run is one comparison.
type Run struct {
	Load   [2]float64                 `json:"load"`   // processes ready to run in the minute before, and in the last one
	Costs  map[string]map[string]Cost `json:"costs"`  // by work and side
	Ratios []Ratio                    `json:"ratios"` // of two sides in the same round
}

// Cost is the cost of one operation, in microseconds: the medians of the rounds, and the
// time that Lambda would bill.
type Cost struct {
	Wall   float64 `json:"wall"`
	CPU    float64 `json:"cpu"`              // of the client's process
	Billed float64 `json:"billed,omitempty"` // the time while each call takes storeCall; only on the plain table
}

// Ratio is the cost of one side relative to another one.
type Ratio struct {
	Work string `json:"work"`
	Of   string `json:"of"`
	To   string `json:"to"`
	Wall Spread `json:"wall"`
	CPU  Spread `json:"cpu"`
}

// Spread is a median with its quartiles.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Encode returns the content of results.json: a row of a run, and whatever else fits, has one line.
func (r *Results) Encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := writeLines(&b, text, "\n"); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// writeLines writes a compact JSON value. A longer one than 600 bytes has a line for each of its members.
func writeLines(b *bytes.Buffer, value json.RawMessage, newline string) error {
	if len(value) <= 600 {
		b.Write(value)
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for end := value[:1]; decoder.More(); end = []byte{','} {
		b.Write(end)
		b.WriteString(newline + " ")
		if value[0] == '{' {
			name, err := decoder.Token()
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "%q: ", name)
		}
		var member json.RawMessage
		if err := decoder.Decode(&member); err != nil {
			return err
		}
		if err := writeLines(b, member, newline+" "); err != nil {
			return err
		}
	}
	b.WriteString(newline)
	b.WriteByte(value[len(value)-1])
	return nil
}

// add adds the turns of the sides at a work.
func (r *Run) add(w work, sides []side, turns [][]turn) {
	r.Costs[w.name] = map[string]Cost{}
	wall, cpu := func(t turn) float64 { return t.Wall }, func(t turn) float64 { return t.CPU }
	for i, s := range sides {
		if !s.takes(w) {
			continue
		}
		r.Costs[w.name][s.String()] = Cost{
			Wall: round4(spreadOf(each(turns[i], wall)).Median / 1e3), CPU: round4(spreadOf(each(turns[i], cpu)).Median / 1e3)}
	}
	for i, of := range sides {
		for j, to := range sides {
			if of.Table == to.Table && of.takes(w) && isCompared(of.Contestant, to.Contestant) {
				r.Ratios = append(r.Ratios, Ratio{Work: w.name, Of: of.String(), To: to.String(),
					Wall: spreadOf(quotients(turns[i], turns[j], wall)), CPU: spreadOf(quotients(turns[i], turns[j], cpu))})
			}
		}
	}
}

// isCompared reports whether the first is measured by the second: once by the bare
// SDK, and the others by once.
func isCompared(of, to string) bool {
	switch of {
	case rerun, reconcile:
		return to == bare
	case bare:
		return false
	}
	return to == rerun
}

func each(turns []turn, of func(turn) float64) []float64 {
	var v []float64
	for _, t := range turns {
		v = append(v, of(t))
	}
	return v
}

func quotients(a, b []turn, of func(turn) float64) []float64 {
	v := each(a, of)
	for i := range v {
		v[i] /= of(b[i])
	}
	return v
}

func spreadOf(v []float64) Spread {
	v = slices.Sorted(slices.Values(v))
	at := func(q float64) float64 { // between the two neighbours of the quantile
		x := q * float64(len(v)-1)
		low := int(x)
		return round4(v[low] + (x-float64(low))*(v[min(low+1, len(v)-1)]-v[low]))
	}
	return Spread{at(0.5), at(0.25), at(0.75)}
}

// round4 rounds to four digits, which is more than a measurement has.
func round4(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // what it formats it also parses
	return v
}

func (t Traffic) minus(u Traffic) Traffic {
	return Traffic{t.Calls - u.Calls, t.Sent - u.Sent, t.Received - u.Received, t.Writes - u.Writes, t.Reads - u.Reads}
}

func (t Traffic) each(n int) Traffic {
	f := float64(n)
	return Traffic{round4(t.Calls / f), round4(t.Sent / f), round4(t.Received / f), round4(t.Writes / f), round4(t.Reads / f)}
}
