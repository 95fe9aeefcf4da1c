// SPDX-License-Identifier: Apache-2.0

// Package browser tests the pages of the repository in Chromium, which the script
// install beside this file installs at its locked version. Its tests are about the
// playground of the example and the console of the command line.
//
// A test opens pages, and acts on them as a person does: by mouse and keyboard.
// It waits for conditions on a page, never for a time. Each page has cookies and
// its own storage.
package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/once-lambda/once/internal/kit/engine"
)

// Browser is a running Chromium without windows. It is safe for concurrent use.
//
// The two speak the DevTools protocol over a pair of pipes, as JSON texts that end
// with a zero byte. No package is needed for so few methods, and the packages with
// all of them take longer to compile than the tests take to run.
type Browser struct {
	home   string // folder with what was installed
	data   string // folder of the profile
	cmd    *exec.Cmd
	stderr *strings.Builder

	mu       sync.Mutex
	in       io.WriteCloser
	last     int
	pending  map[int]chan<- message
	sessions map[string]func(message)
	ended    error // why no message will come any more
}

// message is a message of the protocol: a command, its result, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`

	raw []byte // of the whole message, for events
}

// Start installs Chromium if it is missing, and starts it, or the program that the
// environment variable CHROMIUM names. It reaches 127.0.0.1 only. The caller closes it.
func Start(ctx context.Context) (*Browser, error) {
	home, err := engine.Output(exec.CommandContext(ctx, filepath.Join(engine.Root(), "tests/deployed/browser/install")))
	if err != nil {
		return nil, fmt.Errorf("browser: Chromium was not installed: %w", err)
	}
	data, err := os.MkdirTemp("", "once-browser-")
	if err != nil {
		return nil, err
	}
	b := &Browser{home: home, data: data, stderr: &strings.Builder{}, pending: map[int]chan<- message{}, sessions: map[string]func(message){}}
	if err := b.launch(); err != nil {
		return nil, errors.Join(fmt.Errorf("browser: Chromium did not start: %w", err), os.RemoveAll(data))
	}
	return b, nil
}

func (b *Browser) launch() error {
	fromUs, toBrowser, err := os.Pipe()
	if err != nil {
		return err
	}
	fromBrowser, toUs, err := os.Pipe()
	if err != nil {
		return err
	}
	program, libraries := os.Getenv("CHROMIUM"), ""
	if program == "" {
		program, libraries = filepath.Join(b.home, "chromium"), filepath.Join(b.home, "al2023/lib")
	}
	b.cmd = exec.Command(program,
		"--headless", "--remote-debugging-pipe", "--user-data-dir="+b.data, "--no-first-run",
		"--no-sandbox", "--no-zygote", "--disable-dev-shm-usage", // containers have neither the rights nor the memory for these
		"--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank")
	b.cmd.ExtraFiles = []*os.File{fromUs, toUs}
	b.cmd.Env = append(os.Environ(), "HOME="+b.data, "TMPDIR="+b.data,
		"LD_LIBRARY_PATH="+libraries, "FONTCONFIG_PATH="+filepath.Join(b.home, "fonts"))
	b.cmd.Stderr = b.stderr
	err = b.cmd.Start()
	fromUs.Close()
	toUs.Close()
	if err != nil {
		return errors.Join(err, toBrowser.Close(), fromBrowser.Close())
	}
	b.in = toBrowser
	go b.read(fromBrowser)
	return b.call(context.Background(), "", "Browser.getVersion", nil, nil)
}

// Close ends Chromium, which also ends when the pipes are closed.
func (b *Browser) Close() error {
	closing := b.call(context.Background(), "", "Browser.close", nil, nil)
	if closing != nil {
		closing = errors.Join(closing, b.cmd.Process.Kill())
	}
	b.cmd.Wait() // its code does not matter
	return errors.Join(closing, b.in.Close(), os.RemoveAll(b.data))
}

// read passes on what Chromium sends, until it ends.
func (b *Browser) read(from io.ReadCloser) {
	defer from.Close()
	lines := bufio.NewReaderSize(from, 1<<16)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			b.end(fmt.Errorf("browser: Chromium ended: %w", err))
			return
		}
		var m message
		m.raw = text[:len(text)-1]
		if err := json.Unmarshal(m.raw, &m); err != nil {
			b.end(fmt.Errorf("browser: invalid message from Chromium: %w", err))
			return
		}
		b.mu.Lock()
		answered, event := b.pending[m.ID], b.sessions[m.SessionID]
		delete(b.pending, m.ID)
		b.mu.Unlock()
		switch {
		case answered != nil:
			answered <- m
		case m.Method != "" && event != nil:
			event(m)
		}
	}
}

func (b *Browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = err
	for _, waiting := range b.pending {
		close(waiting)
	}
	b.pending = nil
}

// call sends a command, and decodes its result into result unless that is nil.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	answer := make(chan message, 1)
	if err := b.send(message{SessionID: session, Method: method, Params: params}, answer); err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return b.ended
		case m.Error != nil:
			return fmt.Errorf("browser: %s failed: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("browser: %s failed: %w", method, ctx.Err())
	}
}

func (b *Browser) send(m message, answer chan<- message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		return b.ended
	}
	b.last++
	m.ID = b.last
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b.pending[m.ID] = answer
	_, err = b.in.Write(append(text, 0))
	return err
}

// on calls f for each event of a session.
func (b *Browser) on(session string, f func(message)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[session] = f
}
