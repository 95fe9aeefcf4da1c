// SPDX-License-Identifier: Apache-2.0

package lambdabatch

// DefaultReserve is the default of [Options.Reserve].
const DefaultReserve = defaultReserve
