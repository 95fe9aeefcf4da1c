// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"time"
)

// Console is a process of once console --json with an open session.
type Console struct {
	*Process
	client http.Client
	origin string
	secret string
}

// StartConsole starts cmd, which is once console --json, and opens its session.
func StartConsole(ctx context.Context, cmd *exec.Cmd) (*Console, error) {
	p, first, err := StartUntil(cmd, "{")
	if err != nil {
		return nil, err
	}
	c := &Console{Process: p, client: http.Client{Timeout: 20 * time.Second}}
	if err := c.enter(ctx, "{"+first); err != nil {
		_ = p.End(os.Interrupt)
		return nil, err
	}
	return c, nil
}

// enter opens the session with the ticket in the address that the console has printed.
func (c *Console) enter(ctx context.Context, first string) error {
	var at struct{ URL string }
	if err := json.Unmarshal([]byte(first), &at); err != nil {
		return fmt.Errorf("engine: the first line of once console is %s: %w", first, err)
	}
	u, err := url.Parse(at.URL)
	if err != nil {
		return err
	}
	if c.client.Jar, err = cookiejar.New(nil); err != nil {
		return err
	}
	c.origin = u.Scheme + "://" + u.Host
	var opened struct{ Session string }
	err = c.Call(ctx, "POST", "/api/session", map[string]string{"ticket": u.Fragment}, &opened)
	c.secret = opened.Session
	return err
}

// Call sends a request with in as JSON, and decodes the answer into out, unless that is
// nil. Another status than 200 is an error.
func (c *Console) Call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.origin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Origin": {c.origin}, "Once-Session": {c.secret}}
	res, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("engine: once console answers %s: %s", res.Status, body)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(body, out)
}
