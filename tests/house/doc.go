// Package house holds the rules of the repository that no compiler keeps.
package house
