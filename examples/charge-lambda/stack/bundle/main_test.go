// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	root     = "../../../.."
	function = "./examples/charge-lambda/cmd/lambda"
)

// An archive has the same bytes wherever it is built: in another folder, with
// other Go settings, and with an empty build cache. The last is tried with a
// program without dependencies, because it compiles everything again.
func TestReproducible(t *testing.T) {
	first, tiny := newBundle(t, root, function, "arm64"), newBundle(t, newModule(t), ".", "arm64")
	t.Setenv("GOFLAGS", "-gcflags=-N")
	t.Setenv("GOARM64", "v8.1")
	if second := newBundle(t, checkout(t), function, "arm64"); !bytes.Equal(first, second) {
		t.Errorf("two builds of %s differ: %d bytes and %d bytes", function, len(first), len(second))
	}
	t.Setenv("GOCACHE", t.TempDir())
	if second := newBundle(t, newModule(t), ".", "arm64"); !bytes.Equal(tiny, second) {
		t.Errorf("two builds of a tiny program differ: %d bytes and %d bytes", len(tiny), len(second))
	}
}

// Lambda needs one executable, static file for the processor. Each function of the
// stack is built for arm64, as it is deployed.
func TestArchive(t *testing.T) {
	machines := map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64}
	programs := [][2]string{{"amd64", function}}
	for _, program := range functions {
		_, pkg, _ := strings.Cut(program, "=")
		programs = append(programs, [2]string{"arm64", pkg})
	}
	for _, program := range programs {
		arch, pkg := program[0], program[1]
		zipped := newBundle(t, root, pkg, arch)
		r, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.File) != 1 || r.File[0].Name != "bootstrap" || r.File[0].Mode() != 0o755 {
			t.Fatalf("%s for %s: the archive has %d files; the first is %s with mode %v", pkg, arch, len(r.File), r.File[0].Name, r.File[0].Mode())
		}
		f, err := r.File[0].Open()
		if err != nil {
			t.Fatal(err)
		}
		program, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		binary, err := elf.NewFile(bytes.NewReader(program))
		if err != nil {
			t.Fatal(err)
		}
		if binary.Machine != machines[arch] {
			t.Errorf("%s for %s: the program is for %v", pkg, arch, binary.Machine)
		}
		if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) != 0 {
			t.Errorf("%s for %s: the program needs libraries %v (%v)", pkg, arch, libraries, err)
		}
	}
}

// Each program becomes an archive with its name and processor.
func TestRun(t *testing.T) {
	t.Chdir(newModule(t))
	if err := run(t.Context(), "out", []string{"arm64", "amd64"}, []string{"tiny=."}); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"arm64", "amd64"} {
		written, err := os.ReadFile(filepath.Join("out", "tiny-"+arch+".zip"))
		if want := newBundle(t, ".", ".", arch); err != nil || !bytes.Equal(written, want) {
			t.Errorf("%s: the archive has %d bytes (%v), want %d", arch, len(written), err, len(want))
		}
	}
	for program, want := range map[string]string{
		"tiny":              `invalid program "tiny": want NAME=PACKAGE`,
		"nothing=./nothing": "./nothing for arm64",
	} {
		if err := run(t.Context(), "out", []string{"arm64"}, []string{program}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", program, err, want)
		}
	}
}

func newBundle(t *testing.T, dir, pkg, arch string) []byte {
	t.Helper()
	zipped, err := build(t.Context(), dir, pkg, arch)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s for %s: %d bytes, SHA-256 %x", pkg, arch, len(zipped), sha256.Sum256(zipped))
	return zipped
}

// newModule returns a new folder with a module whose program does nothing.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// checkout copies the repository's files to another folder.
func checkout(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
