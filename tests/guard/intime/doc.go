// SPDX-License-Identifier: Apache-2.0

// Package intime shows for every time-out of a function, every place where a store or a
// function of the user stops, and every front, that the answer is there in time.
package intime
