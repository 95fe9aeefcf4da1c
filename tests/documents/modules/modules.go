// SPDX-License-Identifier: Apache-2.0

// Package modules releases the modules of this tree with tools/release-tag, into a
// bare repository, so that programs outside the workspace can require them as users do.
package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/once-lambda/once/internal/kit/engine"
)

// Release is the version in which the modules require each other.
const Release = "v0.1.0"

// root is the module in the folder of the repository. The others are in folders
// with the rest of their paths.
const root = "github.com/once-lambda/once"

// World is a bare repository with the tags of a release, a module proxy which has what
// the command go made of them, and a separate module cache: the versions in it must not
// be taken for real ones later.
type World struct {
	Git []string // variables with which git finds the repository at the address in the pages
	env []string
}

// New releases the files of this repository, as they are now, below dir, and puts the
// modules at these paths into the proxy. Everything else comes from the machine's cache,
// whose content was verified when it was downloaded.
func New(ctx context.Context, dir string, paths ...string) (*World, error) {
	origin, clone := filepath.Join(dir, "origin.git"), filepath.Join(dir, "clone")
	git, err := Snapshot(ctx, origin)
	if err != nil {
		return nil, err
	}
	settings, err := output(ctx, dir, os.Environ(), "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	var machine struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal(settings, &machine); err != nil {
		return nil, err
	}
	released, users := filepath.Join(dir, "released"), filepath.Join(dir, "mod")
	for _, cache := range []string{released, users} {
		if err := link(cache, machine.GOMODCACHE, "github.com/aws/aws-cdk-go"); err != nil {
			return nil, err
		}
	}
	known := "file://" + machine.GOMODCACHE + "/cache/download," + machine.GOPROXY
	common := append(append(os.Environ(), git...), "GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GONOSUMDB=*")
	forge := append(common[:len(common):len(common)], "GOMODCACHE="+released, "GOPROXY="+known, "GONOPROXY="+root)
	download := []string{"go", "mod", "download"}
	for _, p := range paths {
		download = append(download, p+"@"+Release)
	}
	for _, step := range []struct {
		dir  string
		args []string
	}{
		{dir, []string{"git", "clone", "-q", "https://" + root, clone}},
		// Step 2 of RELEASING.md.
		{clone, []string{"sed", "-i", "s/^## .Unreleased.$/## [" + Release[1:] + "]/", "CHANGELOG.md"}},
		{clone, []string{"git", "commit", "-qam", "Release " + Release}},
		{clone, []string{"tools/release-tag", Release}},
		{dir, download},
	} {
		if _, err := output(ctx, step.dir, forge, step.args...); err != nil {
			return nil, err
		}
	}
	return &World{Git: git, env: append(common, "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOMODCACHE="+users,
		"GOPROXY=file://"+released+"/cache/download,"+known)}, nil
}

// link uses modules of the machine's cache in another one without a copy. The CDK has
// 30,000 files.
func link(cache, machine, modules string) error {
	for _, at := range []string{modules, "cache/download/" + modules} {
		if _, err := os.Stat(filepath.Join(machine, at)); err != nil {
			return nil // it is downloaded where it is needed
		}
		if err := os.MkdirAll(filepath.Join(cache, filepath.Dir(at)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(machine, at), filepath.Join(cache, at)); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot commits the files of this repository, as they are now, to a new bare one in dir,
// which does not exist. It returns variables with which git finds that one at the address in
// the pages, and has an author.
func Snapshot(ctx context.Context, dir string) (variables []string, err error) {
	variables = []string{
		"GIT_CONFIG_COUNT=3",
		"GIT_CONFIG_KEY_0=url." + dir + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + root,
		"GIT_CONFIG_KEY_1=user.name", "GIT_CONFIG_VALUE_1=test",
		"GIT_CONFIG_KEY_2=user.email", "GIT_CONFIG_VALUE_2=test@example.com",
	}
	env := append(append(os.Environ(), variables...), "GIT_DIR="+dir, "GIT_WORK_TREE="+engine.Root())
	for _, args := range [][]string{
		{"git", "init", "-q", "-b", "main"},
		{"git", "add", "-A"},
		{"git", "commit", "-qm", "the working tree"},
		{"git", "config", "core.bare", "true"},
		{"git", "config", "--unset", "core.worktree"},
	} {
		if _, err := output(ctx, engine.Root(), env, args...); err != nil {
			return nil, err
		}
	}
	return variables, nil
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
		return nil, fmt.Errorf("%v: %w\n%s%s", args, err, &stderr, out)
	}
	return out, nil
}
