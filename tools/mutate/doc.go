// Command mutate breaks the protocol's code on purpose, one small change at a
// time, and runs the tests that have to notice: a clause of a condition that
// can go without a test failing is a clause that nobody guards.
//
//	make mutate                       # every mutant
//	make mutate ARGS='-run decide'    # those whose name matches
//	make mutate ARGS='-survivors'     # tell only of those that need a person
//	make mutate ARGS='-list'          # what there is, without running it
//
// targets.go says which files are broken, operators.go and conditions.go how,
// and declared.go which changes change nothing that anybody could observe, and
// why. For each package one test binary is built that holds all mutants: every
// function to be broken begins with a switch that leads to its broken copies,
// and an environment variable says which one is on. The broken sources exist
// only in a temporary folder (go build -overlay); the tree is never touched.
//
// One line tells the fate of each mutant, and the last one sums up. The exit
// status is 1 if one survived, if no test failed and one did not end that is
// not declared to be endless, if one that was declared equivalent was killed,
// if one does not compile, or if a declaration fits no mutant. It is 2 if the
// tests fail without any mutant: then nothing was shown.
package main
