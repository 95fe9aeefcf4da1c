// SPDX-License-Identifier: Apache-2.0

// Package powertools lets a guard take over the work of a function that uses the
// idempotency utility of Powertools for AWS Lambda, in Python or TypeScript, while
// that function still runs. [Predecessor] returns the function for
// [idempotent.Operation.Predecessor]:
//
//	asked, err := powertools.Predecessor(client, "idempotency", powertools.Python, "charge.app.handler")
//	handler := idempotent.Wrap(guard, key, charge, func(o *idempotent.Options) { o.Predecessor = asked })
//
// [Resolver] settles the keys that Powertools completed late.
//
// The partition key of an item of Powertools is a prefix, a #, and a hash of the
// payload. The prefix is the key_prefix of the decorator, or else
//
//	Python      AWS_LAMBDA_FUNCTION_NAME.module.qualified_name_of_the_function
//	TypeScript  AWS_LAMBDA_FUNCTION_NAME
//
// The hash is MD5, in hexadecimal in Python and in base64 in TypeScript. A test runs
// both packages and compares. Names that Options repeats are those of Python.
package powertools
