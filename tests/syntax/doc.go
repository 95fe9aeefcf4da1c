// Package syntax holds the parser of keys against others: the official test
// vectors for structured fields, and github.com/dunglas/httpsfv.
package syntax
