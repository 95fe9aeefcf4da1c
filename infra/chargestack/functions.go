package chargestack

import "path"

// Function is a program of the example.
type Function struct {
	Name    string
	Package string // from the root of the repository
}

// Functions are those of the stack.
var Functions = []Function{
	{"charge", "./examples/charge-lambda/cmd/lambda"},
	{"reconciler", "./examples/charge-lambda/cmd/reconciler"},
	{"orders", "./examples/order-queue/cmd/lambda"},
}

// BundlePath is where a function's archive lies, from the root of the repository.
func BundlePath(name, arch string) string {
	return path.Join(".cache/bundles", name+"-"+arch+".zip")
}
