// SPDX-License-Identifier: Apache-2.0

// Command bundle builds Go programs into the zip archives that Lambda's runtime
// provided.al2023 starts, and prints their sizes. An archive NAME-ARCH.zip
// contains one static file, bootstrap. The same Go version and the same source
// produce the same bytes on every machine.
//
//	go run ./bundle                           # the stack's functions, into .cache/bundles
//	go run ./bundle -arch arm64 -o DIR NAME=PACKAGE …
package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

const examples = "github.com/once-lambda/once/examples/"

// functions are the functions of the stack.
var functions = []string{
	"charge=" + examples + "charge-lambda/cmd/lambda",
	"reconciler=" + examples + "charge-lambda/cmd/reconciler",
	"orders=" + examples + "order-queue/cmd/lambda",
}

func main() {
	out := flag.String("o", "../../../.cache/bundles", "folder of the archives")
	arch := flag.String("arch", "arm64,amd64", "processors, separated by commas; arm64 costs a fifth less")
	flag.Parse()
	programs := flag.Args()
	if len(programs) == 0 {
		programs = functions
	}
	if err := run(context.Background(), *out, strings.Split(*arch, ","), programs); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, architectures, programs []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FUNCTION\tPROCESSOR\tZIPPED\tSHA-256")
	for _, program := range programs {
		name, pkg, ok := strings.Cut(program, "=")
		if !ok {
			return fmt.Errorf("invalid program %q: want NAME=PACKAGE", program)
		}
		for _, arch := range architectures {
			archive, err := build(ctx, ".", pkg, arch)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(out, name+"-"+arch+".zip"), archive, 0o644); err != nil {
				return err
			}
			fmt.Fprintf(table, "%s\t%s\t%.1f MB\t%.6x…\n", name, arch, float64(len(archive))/1e6, sha256.Sum256(archive))
		}
	}
	return table.Flush()
}

// build builds the program of package pkg, as seen from the folder dir, into an
// archive for a processor.
func build(ctx context.Context, dir, pkg, arch string) ([]byte, error) {
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
		return nil, fmt.Errorf("%s for %s: %w\n%s", pkg, arch, err, said)
	}
	program, err := os.ReadFile(bootstrap)
	if err != nil {
		return nil, err
	}
	return archive(program)
}

// archive returns an archive with program as its executable bootstrap.
func archive(program []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
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
	return zipped.Bytes(), nil
}
