package bundle_test

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

	"github.com/once-lambda/once/infra/bundle"
)

const root = "../.."

// An archive has the same bytes wherever it is built: in another folder, with
// an empty build cache, and with other Go settings.
func TestReproducible(t *testing.T) {
	elsewhere := checkout(t)
	pkg := bundle.Functions[0].Package
	first := map[string][]byte{}
	for _, arch := range bundle.Architectures {
		first[arch] = build(t, root, pkg, arch)
	}
	t.Setenv("GOFLAGS", "-gcflags=-N")
	t.Setenv("GOAMD64", "v3")
	compare := func(arch string) {
		t.Helper()
		second := build(t, elsewhere, pkg, arch)
		t.Logf("%s: %d bytes, SHA-256 %x", arch, len(second), sha256.Sum256(second))
		if !bytes.Equal(first[arch], second) {
			t.Errorf("%s: two builds differ: %d bytes and %d bytes", arch, len(first[arch]), len(second))
		}
	}
	compare("amd64")
	t.Setenv("GOCACHE", t.TempDir()) // for one of the two only, because it compiles everything again
	compare("arm64")
	if bytes.Equal(first["arm64"], first["amd64"]) {
		t.Error("both processors have the same program")
	}
}

// Lambda needs one executable, static file for the processor.
func TestArchive(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64} {
		zipped := build(t, root, bundle.Functions[0].Package, arch)
		r, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.File) != 1 || r.File[0].Name != "bootstrap" || r.File[0].Mode() != 0o755 {
			t.Fatalf("%s: the archive has %d files; the first is %s with mode %v", arch, len(r.File), r.File[0].Name, r.File[0].Mode())
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
		if binary.Machine != machine {
			t.Errorf("%s: the program is for %v", arch, binary.Machine)
		}
		if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) != 0 {
			t.Errorf("%s: the program needs libraries %v (%v)", arch, libraries, err)
		}
	}
}

func TestBuildFails(t *testing.T) {
	_, err := bundle.Build(t.Context(), root, "./examples/nothing", "arm64")
	if err == nil || !strings.Contains(err.Error(), "./examples/nothing for arm64") {
		t.Errorf("got %v", err)
	}
}

func build(t *testing.T, dir, pkg, arch string) []byte {
	t.Helper()
	zipped, err := bundle.Build(t.Context(), dir, pkg, arch)
	if err != nil {
		t.Fatal(err)
	}
	return zipped
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
