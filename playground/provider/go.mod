module github.com/once-lambda/once/playground/provider

go 1.26.0
