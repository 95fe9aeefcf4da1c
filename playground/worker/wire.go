// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
)

// wire is a connection of two pipes, on which each call is a JSON text and gets
// another one. It is safe for concurrent use.
type wire struct {
	r, w *os.File
	in   *json.Decoder
	out  *json.Encoder

	mu sync.Mutex
}

func newWire(r, w *os.File) *wire {
	return &wire{r: r, w: w, in: json.NewDecoder(r), out: json.NewEncoder(w)}
}

// call sends a call and waits for its answer. It returns syscall.EPIPE if the other
// process had ended before the call.
func (c *wire) call(in, out any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(in); err != nil {
		return err
	}
	return c.in.Decode(out)
}

// close closes the wire once no call waits for its answer.
func (c *wire) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.r.Close(), c.w.Close())
}

// serve answers the calls on a wire, one after the other, until the other process
// ends or the wire is closed.
func serve[In, Out any](c *wire, answer func(In) Out) error {
	for {
		var in In
		if err := c.in.Decode(&in); err != nil {
			return errors.Join(err, c.close())
		}
		if err := c.out.Encode(answer(in)); err != nil {
			return errors.Join(err, c.close())
		}
	}
}
