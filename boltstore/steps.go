package boltstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/once-lambda/once/idempotent/driver"
)

// stepFields is the only list of the stored fields of a step, bound to s. The
// members have the names of the DynamoDB table.
func stepFields(s *driver.StepRecord) []field {
	return []field{
		coded("m", "a mode", &s.Mode, driver.StepMode.Code, driver.ParseStepMode),
		required(number("a", &s.Attempt)),
		millis("t", &s.At),
		optional(coded("b", "a source", &s.By, driver.StepSource.Code, driver.ParseStepSource), &s.By),
		text("s", &s.Shape),
		text("e", &s.Encoding),
		result("r", &s.Result),
	}
}

// required makes a field present even if it is zero.
func required(f field) field {
	f.required, f.absent = true, never
	return f
}

// steps stores the steps of a record as an object with their names as keys. rest
// has the members that a later version wrote into a step.
func steps(name string, p *[]driver.StepRecord, rest *map[string]document) field {
	return field{name: name, kind: "an object of steps",
		absent: func() bool { return len(*p) == 0 },
		value: func() (any, error) {
			stored := make(map[string]document, len(*p))
			for _, s := range *p {
				switch {
				case !s.Finished:
					s.Result = nil
				case s.Result == nil: // encoding/json would write null
					s.Result = []byte{}
				}
				if !consistent(&s) || s.Finished != (s.Encoding != "") {
					return nil, errors.New("invalid step: no name, or a result or a source without an encoding")
				}
				var err error
				if stored[s.Name], err = encodeFields(stepFields(&s), (*rest)[s.Name]); err != nil {
					return nil, err
				}
			}
			return stored, nil
		},
		read: func(raw json.RawMessage) bool {
			var stored map[string]document
			if !unmarshal(raw, &stored) {
				return false
			}
			for name, doc := range stored {
				s := driver.StepRecord{Name: name}
				unknown, _, problem := decodeFields(doc, stepFields(&s))
				s.Finished = s.Encoding != ""
				if problem != "" || !consistent(&s) {
					return false
				}
				if unknown != nil {
					if *rest == nil {
						*rest = map[string]document{}
					}
					(*rest)[name] = unknown
				}
				*p = append(*p, s)
			}
			slices.SortFunc(*p, func(a, b driver.StepRecord) int { return cmp.Compare(a.Name, b.Name) })
			return len(*p) > 0
		},
	}
}

// consistent reports whether s has a name, and has a result if and only if it has
// finished. A step without a result has no source.
func consistent(s *driver.StepRecord) bool {
	return s.Name != "" && s.Finished == (s.Result != nil) && (s.Finished || s.By == 0)
}
