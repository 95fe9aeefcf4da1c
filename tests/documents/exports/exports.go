// SPDX-License-Identifier: Apache-2.0

// Package exports reads what the compiler exports of packages, for tests that check
// their types.
package exports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
)

// Package is a package as the go command lists it.
type Package struct {
	ImportPath, Export string
	GoFiles            []string
	Module             struct{ Dir string }
}

// List compiles the packages that match pattern in a folder, and returns them after
// all that they import. The importer has the types of each.
func List(fset *token.FileSet, dir, pattern string) (list []Package, imports types.Importer, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,Module", pattern)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		list = append(list, p)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return list, importer.ForCompiler(fset, "gc", open), nil
}
