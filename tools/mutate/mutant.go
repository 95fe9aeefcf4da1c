// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// mutant is one small change.
type mutant struct {
	id    int    // the value of the environment variable, from 1
	pkg   string // folder of the package, from the root
	where string // function or constant
	file  string // base name
	line  int
	what  string // the change in words
	nth   int    // from 2 if several changes of a function have the same words
	edit  edit
	entry int // id of the first mutant of the same function; 0: of a constant

	condition bool // of DynamoDB
}

// name returns the mutant's name. It stays the same as long as the code around
// the change does.
func (m mutant) name() string {
	s := m.pkg + "." + m.where + ": " + m.what
	if m.nth > 1 {
		s += fmt.Sprintf(" (%d)", m.nth)
	}
	return s
}

// number sets the ids of a package's mutants, and numbers those with the same
// words.
func number(mutants []mutant) {
	seen := map[string]int{}
	for i := range mutants {
		m := &mutants[i]
		m.id = i + 1
		key := m.where + "\x00" + m.what
		seen[key]++
		m.nth = seen[key]
	}
}

// outcome is the result of a mutant.
type outcome uint8

const (
	killed          outcome = iota + 1
	neverEnds               // declared endless, so that its time-out counts as killed
	equivalent              // declared, and no test noticed
	left                    // listed in left.go, and no test noticed
	survived                // from here on a person has to look at it
	hung                    // no test failed, but one did not end, possibly for other reasons
	wronglyDeclared         // declared equivalent or listed in left.go, and a test noticed
	refused                 // by the compiler
	outcomes                // the number of outcomes
)

func (o outcome) fine() bool { return o < survived }

// verdict is the line about a mutant.
type verdict struct {
	mutant
	fate
	outcome
	reason string // why it is equivalent, or what a user would see
}

func (v verdict) String() string {
	s := fmt.Sprintf("%s (%s:%d): ", v.name(), v.file, v.line)
	switch v.outcome {
	case killed, neverEnds:
		return s + "killed by " + v.by
	case equivalent:
		return s + "equivalent: " + v.reason
	case left:
		return s + "left: " + v.reason
	case survived:
		return s + "SURVIVED"
	case hung:
		return s + "HUNG, ended by " + v.by + "; write a test that fails, or declare it endless"
	case wronglyDeclared:
		return s + "DECLARED EQUIVALENT OR LEFT, but killed by " + v.by
	default:
		return s + "DOES NOT COMPILE; add a form that does to operators.go"
	}
}

// summary counts the mutants by outcome.
type summary [outcomes]int

// ok reports whether no mutant needs attention.
func (s summary) ok() bool {
	for o, n := range s {
		if n > 0 && !outcome(o).fine() {
			return false
		}
	}
	return true
}

// since returns what was counted after before.
func (s summary) since(before summary) summary {
	for o := range s {
		s[o] -= before[o]
	}
	return s
}

func (s summary) String() string {
	all := 0
	for _, n := range s {
		all += n
	}
	text := fmt.Sprintf("%d mutants: %d killed, %d of them because they never end; %d equivalent, %d left, %d survived",
		all, s[killed]+s[neverEnds], s[neverEnds], s[equivalent], s[left], s[survived])
	for _, rare := range []struct {
		outcome
		what string
	}{{hung, "hung"}, {wronglyDeclared, "wrongly declared"}, {refused, "did not compile"}} {
		if n := s[rare.outcome]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, rare.what)
		}
	}
	return text
}
