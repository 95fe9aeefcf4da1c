// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// projects are public modules with handlers of HTTP or of Lambda, and what oncevet finds
// in them when all handlers of a package are guarded under Rerun. Each finding was read
// and is right.
var projects = []struct {
	module, pkg string
	handlers    int
	findings    []string
}{
	{"github.com/mccutchen/go-httpbin/v2@v2.26.0", "httpbin", 55, nil},
	{"github.com/letsencrypt/pebble/v2@v2.10.3", "wfe", 18, []string{"wfe.go:149 lostcontext"}}, // ctx := context.TODO()
	{"github.com/awslabs/aws-lambda-go-api-proxy@v0.16.2", "httpadapter", 3, nil},
	{"github.com/tus/tusd/v2@v2.9.1", "pkg/handler", 6, nil},
	{"github.com/hashicorp/jsonapi@v1.5.0", "examples", 6, nil},
	{"golang.org/x/tools@v0.52.0", "playground", 1, []string{"playground.go:41 downstreamkey"}}, // it passes a POST on, without a key
}

// adapters guard a handler with these parameters.
var adapters = map[string]string{
	"http.ResponseWriter, *http.Request":                  "lambdahttp.Middleware(guard, rerunByOnce)(http.HandlerFunc(%s))",
	"context.Context, http.ResponseWriter, *http.Request": "lambdahttp.Middleware(guard, rerunByOnce)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { %s(r.Context(), w, r) }))",
	"context.Context, events.APIGatewayProxyRequest":      "lambdahttp.APIGatewayV1(guard, %s, rerunByOnce)",
	"context.Context, events.APIGatewayV2HTTPRequest":     "lambdahttp.APIGatewayV2(guard, %s, rerunByOnce)",
	"context.Context, events.ALBTargetGroupRequest":       "lambdahttp.ALB(guard, %s, rerunByOnce)",
}

// The handlers of public projects, read from the module cache, have no false findings.
func TestProjects(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(t.TempDir(), "oncevet")
	if out, err := exec.Command("go", "build", "-o", tool, "./cmd/oncevet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range projects {
		t.Run(p.module, func(t *testing.T) {
			dir := t.TempDir()
			run := func(args ...string) string {
				t.Helper()
				c := exec.Command("go", args...)
				c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
				out, err := c.CombinedOutput()
				if err != nil && args[0] != "vet" {
					t.Fatalf("go %v: %v: %s", args, err, out)
				}
				return string(out)
			}
			write(t, filepath.Join(dir, "go.mod"), "module example.com/fetch\n")
			var module struct{ Dir string }
			if err := json.Unmarshal([]byte(run("mod", "download", "-json", p.module)), &module); err != nil {
				t.Fatal(err)
			}
			copyCode(t, dir, module.Dir)
			pkg := filepath.Join(dir, filepath.FromSlash(p.pkg))
			code, handlers := guardAll(t, pkg)
			if handlers < p.handlers {
				t.Errorf("%d handlers, want %d", handlers, p.handlers)
			}
			write(t, filepath.Join(pkg, "guarded_by_once.go"), code)
			run("mod", "edit", "-go=1.26.0", "-require="+strings.TrimSuffix(once, "/")+"@v0.1.0", "-replace="+strings.TrimSuffix(once, "/")+"="+root)
			run("build", "-o", os.DevNull, "./"+p.pkg)
			out := run("vet", "-vettool="+tool, "./"+p.pkg)
			var found []string
			for _, m := range regexp.MustCompile(`(?m)([^/\s]+\.go:\d+):\d+: (\w+): `).FindAllStringSubmatch(out, -1) {
				found = append(found, m[1]+" "+m[2])
			}
			if slices.Sort(found); !slices.Equal(found, p.findings) {
				t.Errorf("%d handlers, found %q, want %q:\n%s", handlers, found, p.findings, out)
			}
			t.Logf("%d handlers, %d findings", handlers, len(found))
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyCode copies a module from the module cache, whose files cannot be changed, without
// its tests.
func copyCode(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			write(t, filepath.Join(to, name), string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// guardAll returns a file that guards each function and method of a package which has the
// parameters of a handler.
func guardAll(t *testing.T, dir string) (code string, handlers int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	pkg, body := "", ""
	set := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		pkg = file.Name.Name
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Type.TypeParams != nil {
				continue
			}
			var params []string
			for _, field := range f.Type.Params.List {
				text := typeText(field.Type)
				params = append(params, slices.Repeat([]string{text}, max(1, len(field.Names)))...)
			}
			adapter := adapters[strings.Join(params, ", ")]
			if adapter == "" || adapter[len("lambdahttp."):][0] == 'M' && f.Type.Results != nil {
				continue
			}
			receiver, handler := "", f.Name.Name
			if f.Recv != nil {
				receiver, handler = ", x "+typeText(f.Recv.List[0].Type), "x."+handler
			}
			body += fmt.Sprintf("func guardedByOnce%d(guard *idempotent.Guard%s) { "+adapter+" }\n", handlers, receiver, handler)
			handlers++
		}
	}
	code = "package " + pkg + "\nimport \"" + once + "idempotent\"\nimport \"" + once + "lambdahttp\"\n"
	if strings.Contains(body, "http.HandlerFunc(") {
		code += "import \"net/http\"\n"
	}
	code += "func rerunByOnce(o *lambdahttp.Options) { o.Guard = func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun } }\n"
	return code + body, handlers
}

// typeText returns a type as code, if it is a name or a pointer to one.
func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeText(e.X) + "." + e.Sel.Name
	case *ast.StarExpr:
		return "*" + typeText(e.X)
	}
	return "?"
}
