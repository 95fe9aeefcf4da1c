// SPDX-License-Identifier: Apache-2.0

// Package peers compares once with what its users would use instead, side by side
// on one DynamoDB Local.
package peers
