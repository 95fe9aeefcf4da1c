// SPDX-License-Identifier: Apache-2.0

// Package modules releases the modules of this tree into a module proxy of files,
// so that programs outside the workspace can require them as users do.
package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/once-lambda/once/internal/kit/engine"
)

// Release is the version in which the modules require each other.
const Release = "v0.1.0"

// root is the module in the folder of the repository. The others are in folders
// with the rest of their paths.
const root = "github.com/once-lambda/once"

// World is a proxy with releases, and a separate module cache: the versions in
// it must not be taken for real ones later.
type World struct {
	proxy, cache, trees string
	env                 []string
}

// New releases the modules at these paths into a proxy below dir, in this order, so
// that a module comes after those that it requires. Everything else comes from the
// machine's cache, whose content was verified when it was downloaded.
func New(ctx context.Context, dir string, paths ...string) (*World, error) {
	w := &World{proxy: filepath.Join(dir, "proxy"), cache: filepath.Join(dir, "mod"), trees: filepath.Join(dir, "trees")}
	settings, err := output(ctx, dir, os.Environ(), "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	var machine struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal(settings, &machine); err != nil {
		return nil, err
	}
	w.env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOMODCACHE="+w.cache, "GONOSUMDB=*",
		"GOPROXY=file://"+w.proxy+",file://"+machine.GOMODCACHE+"/cache/download,"+machine.GOPROXY)
	list, err := output(ctx, engine.Root(), os.Environ(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	if err := w.link(machine.GOMODCACHE, "github.com/aws/aws-cdk-go"); err != nil {
		return nil, err
	}
	for _, p := range paths {
		err := w.prepare(ctx, p, strings.Fields(string(list)))
		if err == nil {
			err = w.publish(p)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return w, nil
}

// link uses modules of the machine's cache without a copy. The CDK has 30,000
// files.
func (w *World) link(machine, modules string) error {
	for _, at := range []string{modules, "cache/download/" + modules} {
		if _, err := os.Stat(filepath.Join(machine, at)); err != nil {
			return nil // it is downloaded where it is needed
		}
		if err := os.MkdirAll(filepath.Join(w.cache, filepath.Dir(at)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(machine, at), filepath.Join(w.cache, at)); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot commits the files of this repository, as they are now, to a new one in dir, which
// does not exist. It returns variables with which git clones that one from the address in
// the pages.
func Snapshot(ctx context.Context, dir string) (variables []string, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	env := append(os.Environ(), "GIT_DIR="+filepath.Join(dir, ".git"), "GIT_WORK_TREE="+engine.Root())
	for _, args := range [][]string{
		{"git", "init", "-q"},
		{"git", "add", "-A"},
		{"git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-qm", "the working tree"},
	} {
		if _, err := output(ctx, dir, env, args...); err != nil {
			return nil, err
		}
	}
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + dir + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + root}, nil
}

// Run runs a program in a folder outside the workspace, and returns its standard
// output. Additional variables have the form NAME=VALUE.
func (w *World) Run(ctx context.Context, dir string, variables []string, args ...string) (string, error) {
	out, err := output(ctx, dir, append(w.env, variables...), args...)
	return string(out), err
}

func output(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", args, err, &stderr)
	}
	return out, nil
}

// tree returns the folder with a module's files at its release.
func (w *World) tree(modulePath string) string { return filepath.Join(w.trees, modulePath) }

// prepare copies a module and adds the sums of the modules released before, as the
// person does who releases it. It is an error if anything else is missing.
func (w *World) prepare(ctx context.Context, modulePath string, tracked []string) error {
	inModule := strings.TrimPrefix(strings.TrimPrefix(modulePath, root), "/")
	nested := map[string]bool{} // folders of other modules
	for _, name := range tracked {
		if dir := path.Dir(name); path.Base(name) == "go.mod" && dir != path.Clean(inModule) && dir != "." {
			nested[dir+"/"] = true
		}
	}
	tree := w.tree(modulePath)
	for _, name := range tracked {
		inside, ok := name, true
		if inModule != "" {
			inside, ok = strings.CutPrefix(name, inModule+"/")
		}
		for n := range nested {
			if strings.HasPrefix(name, n) && len(n) > len(inModule) {
				ok = false
			}
		}
		if !ok {
			continue
		}
		content, err := os.ReadFile(filepath.Join(engine.Root(), name))
		if err == nil {
			err = os.MkdirAll(filepath.Join(tree, filepath.Dir(inside)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(tree, inside), content, 0o644)
		}
		if err != nil {
			return err
		}
	}
	before, err := manifest(tree)
	if err != nil {
		return err
	}
	if _, err := w.Run(ctx, tree, nil, "go", "mod", "tidy"); err != nil {
		return err
	}
	after, err := manifest(tree)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("go mod tidy changes go.mod or go.sum beyond the sums of this repository's modules: from\n%s\nto\n%s", before, after)
	}
	_, err = w.Run(ctx, tree, []string{"GOFLAGS=-mod=readonly -modcacherw -trimpath"}, "go", "list", "-deps", "-test", "./...")
	return err
}

// manifest returns go.mod and go.sum in a folder, without the sums of the modules of
// this repository, which a release adds.
func manifest(dir string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a module without dependencies has no sums
		return "", err
	}
	text := string(mod)
	for line := range strings.Lines(string(sum)) {
		if !strings.HasPrefix(line, root) {
			text += line
		}
	}
	return text, nil
}

// publish adds a prepared module to the proxy, as the proxy of a forge would.
func (w *World) publish(modulePath string) error {
	versions := filepath.Join(w.proxy, modulePath, "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, module.Version{Path: modulePath, Version: Release}, w.tree(modulePath)); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": Release, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(w.tree(modulePath), "go.mod"))
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		Release + ".zip": archive.Bytes(), Release + ".info": info, Release + ".mod": mod, "list": []byte(Release + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
