package bundle

import "path"

// Function is a program of the examples.
type Function struct {
	Name    string
	Package string // from the root of the repository
}

// Functions are the functions that the charge stack deploys.
var Functions = []Function{
	{"charge", "./examples/charge-lambda/cmd/lambda"},
	{"reconciler", "./examples/charge-lambda/cmd/reconciler"},
	{"orders", "./examples/order-queue/cmd/lambda"},
}

// Path returns the path of a function's archive, relative to the root of the
// repository.
func Path(name, arch string) string {
	return path.Join(".cache/bundles", name+"-"+arch+".zip")
}
