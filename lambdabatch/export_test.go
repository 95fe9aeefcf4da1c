package lambdabatch

// DefaultReserve is the default of [Options.Reserve].
const DefaultReserve = defaultReserve
