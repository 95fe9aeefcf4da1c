package lambdahttp

import "github.com/once-lambda/once/idempotent"

// What the tests of other packages cannot reach, and these need.
var (
	Codec        idempotent.Codec = codec{}
	OperationOf                   = operationOf
	SyntaxErrors                  = []error{errNotString, errUnclosed, errEscape, errUnprintable, errTrailing, errParameter}
)
