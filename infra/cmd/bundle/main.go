// Command bundle builds the example's functions for Lambda and prints their
// sizes.
//
//	go run ./cmd/bundle            # into .cache/bundles of the repository
//	go run ./cmd/bundle -arch arm64
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/once-lambda/once/infra/bundle"
)

func main() {
	root := flag.String("root", "..", "folder of the repository")
	arch := flag.String("arch", strings.Join(bundle.Architectures, ","), "processors, separated by commas")
	flag.Parse()
	if err := run(context.Background(), *root, strings.Split(*arch, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, architectures []string) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FUNCTION\tPROCESSOR\tZIPPED\tSHA-256")
	for _, function := range bundle.Functions {
		for _, arch := range architectures {
			archive, err := bundle.Build(ctx, root, function.Package, arch)
			if err != nil {
				return err
			}
			path := filepath.Join(root, bundle.Path(function.Name, arch))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, archive, 0o644); err != nil {
				return err
			}
			sum := sha256.Sum256(archive)
			fmt.Fprintf(table, "%s\t%s\t%.1f MB\t%.6x…\n", function.Name, arch, float64(len(archive))/1e6, sum)
		}
	}
	return table.Flush()
}
