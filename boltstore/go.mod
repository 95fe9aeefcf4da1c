module github.com/once-lambda/once/boltstore

go 1.26.0

require (
	github.com/once-lambda/once v0.1.0
	go.etcd.io/bbolt v1.5.0
)

require (
	github.com/andybalholm/brotli v1.3.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
)
