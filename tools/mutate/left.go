// SPDX-License-Identifier: Apache-2.0

package main

// leftOver are mutants that survive although a user would see the difference, by
// name, each with what the user would see. The list only shrinks: a mutant that a
// test kills has to leave it, and TestDeclaredNamesAreMutants limits its length.
var leftOver = map[string]string{}
