// SPDX-License-Identifier: Apache-2.0

package dynamostore

// ItemSize returns the size of an item in bytes.
var ItemSize = itemSize
