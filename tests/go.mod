module github.com/once-lambda/once/tests

go 1.26.0
