// SPDX-License-Identifier: Apache-2.0

package dynamostore

// ItemSize returns the size of an item in bytes.
var ItemSize = itemSize

// ProtocolOf returns the protocol of a client, from that of the SDK and its schema of a PutItem.
var ProtocolOf = faster
