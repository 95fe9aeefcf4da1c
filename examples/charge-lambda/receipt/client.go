// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Client requests receipts. It is safe for concurrent use.
type Client struct {
	// Base is the service's address, for example "http://127.0.0.1:8080/mail".
	Base string
}

// maxReply limits how much of the service's reply is read, in bytes.
const maxReply = 64 << 10

// Mail mails the receipt of an order, once per key, and returns its id. After an
// error it is unknown whether the receipt was mailed.
func (c *Client) Mail(ctx context.Context, key, order string) (id string, err error) {
	body, err := json.Marshal(Receipt{Order: order})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+"/receipts", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	var mailed Receipt
	if err := do(req, http.StatusCreated, &mailed); err != nil {
		return "", err
	}
	if mailed.ID == "" {
		return "", errors.New("receipt: the reply names no receipt")
	}
	return mailed.ID, nil
}

// Mailed returns the mailed receipts.
func (c *Client) Mailed(ctx context.Context) (mailed []Receipt, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+"/receipts", nil)
	if err != nil {
		return nil, err
	}
	return mailed, do(req, http.StatusOK, &mailed)
}

func do(req *http.Request, want int, v any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != want:
		return fmt.Errorf("receipt: the service answered with status %d", resp.StatusCode)
	}
	return json.Unmarshal(data, v)
}
