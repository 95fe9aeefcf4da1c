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

	"github.com/once-lambda/once/internal/kit"
)

// Console is an open session of once console --json.
type Console struct {
	client http.Client
	origin string
	secret string
}

// OpenConsole opens the session whose address is in the first line that the console printed.
func OpenConsole(ctx context.Context, first string) (*Console, error) {
	var at struct{ URL string }
	if err := json.Unmarshal([]byte(first), &at); err != nil {
		return nil, fmt.Errorf("engine: the first line of once console is %s: %w", first, err)
	}
	u, err := url.Parse(at.URL)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	c := &Console{client: http.Client{Jar: jar, Timeout: kit.Patience}, origin: u.Scheme + "://" + u.Host}
	var opened struct{ Session string }
	err = c.Call(ctx, "POST", "/api/session", map[string]string{"ticket": u.Fragment}, &opened)
	c.secret = opened.Session
	return c, err
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
