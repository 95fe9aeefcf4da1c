// Package bundle builds Go programs into the zip archives that Lambda's runtime
// provided.al2023 starts. An archive has one static file, bootstrap. The same
// Go version and the same source produce the same bytes on every machine.
package bundle

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Architectures are the processors that Lambda supports, in Go's names: arm64
// costs a fifth less, amd64 is x86_64.
var Architectures = []string{"arm64", "amd64"}

// Build builds the program of package pkg, relative to the folder dir, into an
// archive for a processor of [Architectures].
func Build(ctx context.Context, dir, pkg, arch string) ([]byte, error) {
	out, err := os.MkdirTemp("", "bundle")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	bootstrap := filepath.Join(out, "bootstrap")
	cmd := exec.CommandContext(ctx, "go", "build",
		"-trimpath", "-buildvcs=false", // without paths and revisions of this machine
		"-tags", "lambda.norpc", // without code that only the runtime go1.x needed
		"-ldflags", "-s -w -buildid=", "-o", bootstrap, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch,
		"GOFLAGS=", "GOEXPERIMENT=", "GOARM64=v8.0", "GOAMD64=v1") // and without its settings
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("bundle: %s for %s: %w\n%s", pkg, arch, err, said)
	}
	program, err := os.ReadFile(bootstrap)
	if err != nil {
		return nil, err
	}
	return Archive(program)
}

// Archive returns an archive with program as its executable bootstrap.
func Archive(program []byte) ([]byte, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(0o755)
	f, err := w.CreateHeader(header)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
