package boltstore

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// step is a step of a record as it is stored, under its name. Its members are
// those of the DynamoDB table.
type step struct {
	Attempt  int     `json:"a"`
	Encoding string  `json:"e,omitempty"`
	Mode     string  `json:"m"`
	Result   *[]byte `json:"r,omitempty"`
	At       int64   `json:"t,omitempty"`
}

// steps is the steps of a record, as an object by their names.
func steps(name string, p *[]driver.StepRecord) field {
	return field{name: name, kind: "an object of steps",
		absent: func() bool { return len(*p) == 0 },
		value: func() any {
			stored := make(map[string]step, len(*p))
			for _, s := range *p {
				one := step{Mode: s.Mode.Code(), Attempt: s.Attempt, Encoding: s.Encoding}
				if !s.At.IsZero() {
					one.At = s.At.UnixMilli()
				}
				if s.Finished {
					one.Result = &s.Result
				}
				stored[s.Name] = one
			}
			return stored
		},
		read: func(raw json.RawMessage) bool {
			var stored map[string]step
			if !unmarshal(raw, &stored) {
				return false
			}
			for name, one := range stored {
				s, ok := one.record(name)
				if !ok {
					return false
				}
				*p = append(*p, s)
			}
			slices.SortFunc(*p, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
			return len(*p) > 0
		},
	}
}

func (s *step) record(name string) (driver.StepRecord, bool) {
	mode, err := driver.ParseStepMode(s.Mode)
	r := driver.StepRecord{Name: name, Finished: s.Encoding != "", Mode: mode, Attempt: s.Attempt, Encoding: s.Encoding}
	if s.At != 0 {
		r.At = time.UnixMilli(s.At).UTC()
	}
	if s.Result != nil {
		r.Result = *s.Result
	}
	return r, err == nil && name != "" && r.Finished == (s.Result != nil)
}
