module github.com/once-lambda/once/examples/charge-lambda

go 1.26.0
