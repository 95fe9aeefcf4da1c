// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/token"
	"slices"
	"strings"
)

// ignore is a comment
//
//	//oncevet:ignore CHECK reason
//
// which accepts a finding on its line or on the line below.
type ignore struct {
	pos    token.Pos
	check  string
	reason string
	used   bool
}

const directive = "//oncevet:ignore"

// readIgnores returns the comments of the package, by file and line.
func (v *vet) readIgnores() map[string]map[int]*ignore {
	files := map[string]map[int]*ignore{}
	for _, file := range v.pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				rest, ok := strings.CutPrefix(c.Text, directive)
				if !ok {
					continue
				}
				check, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
				at := v.pass.Fset.Position(c.Pos())
				if files[at.Filename] == nil {
					files[at.Filename] = map[int]*ignore{}
				}
				files[at.Filename][at.Line] = &ignore{pos: c.Pos(), check: check, reason: strings.TrimSpace(reason)}
			}
		}
	}
	return files
}

// ignored reports whether a comment accepts a finding.
func (v *vet) isIgnored(check string, pos token.Pos) bool {
	at := v.pass.Fset.Position(pos)
	lines := v.ignores[at.Filename]
	for _, i := range []*ignore{lines[at.Line], lines[at.Line-1]} {
		if i != nil && i.check == check && i.reason != "" {
			i.used = true
			return true
		}
	}
	return false
}

// unusedIgnores reports comments that accept nothing.
func (v *vet) unusedIgnores() {
	for _, lines := range v.ignores {
		for _, i := range lines {
			switch {
			case !slices.Contains(Checks, i.check):
				v.report("ignore", i.pos, "unknown check %q; write %s CHECK reason", i.check, directive)
			case i.reason == "":
				v.report("ignore", i.pos, "a comment without a reason ignores nothing; write %s %s reason", directive, i.check)
			case !i.used:
				v.report("ignore", i.pos, "there is no %s finding here; remove the comment", i.check)
			}
		}
	}
}
