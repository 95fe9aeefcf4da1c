// SPDX-License-Identifier: Apache-2.0

package model

// Slot is what a store holds under one id. It has the only parts of a record
// that a store depends on. The zero Slot is empty.
type Slot struct {
	Version int   // 0: no record
	Expires int64 // milliseconds; 0: never
}

// Insert puts r in place of an empty slot or of a record that has expired at
// now. Otherwise it changes nothing, and met is the current version.
func (s Slot) Insert(r Slot, now int64) (next Slot, met int) {
	if s.Version == 0 || s.Expires != 0 && s.Expires <= now {
		return r, 0
	}
	return s, s.Version
}

// Replace puts r in place of the version was; the expiry is ignored. Otherwise
// it changes nothing: met is the current version, or gone reports that there is
// no record.
func (s Slot) Replace(r Slot, was int) (next Slot, met int, gone bool) {
	switch s.Version {
	case 0:
		return s, 0, true
	case was:
		return r, 0, false
	}
	return s, s.Version, false
}
