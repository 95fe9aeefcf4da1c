module github.com/once-lambda/once/boltstore

go 1.26.0
