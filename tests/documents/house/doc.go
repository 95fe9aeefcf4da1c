// SPDX-License-Identifier: Apache-2.0

// Package house checks the rules of the repository that no compiler checks.
package house
