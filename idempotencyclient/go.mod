module github.com/once-lambda/once/idempotencyclient

go 1.26.0
