// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Traffic is what operations sent and received, and what DynamoDB charges for
// them.
type Traffic struct {
	Calls    float64 `json:"calls"`
	Sent     float64 `json:"sent"`     // bytes, with the headers
	Received float64 `json:"received"` // bytes, with the headers
	Writes   float64 `json:"writes"`   // write units, with those of the index
	Reads    float64 `json:"reads"`    // read units
}

// meter is a proxy in front of DynamoDB Local that counts.
type meter struct {
	server         *httptest.Server
	sent, received atomic.Int64
	mu             sync.Mutex
	calls          int
	writes, reads  float64
	err            error
}

// newMeter returns a proxy for the engine at that address.
func newMeter(engine string) *meter {
	m := &meter{}
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := m.forward(engine, w, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			m.mu.Lock()
			m.err = errors.Join(m.err, err)
			m.mu.Unlock()
		}
	}))
	m.server.Listener = meteredListener{m.server.Listener, m}
	m.server.Start()
	return m
}

// take returns what was counted since the last call, during a work that ended with
// err.
func (m *meter) take(err error) (Traffic, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := Traffic{float64(m.calls), float64(m.sent.Swap(0)), float64(m.received.Swap(0)), m.writes, m.reads}
	m.calls, m.writes, m.reads = 0, 0, 0
	return t, errors.Join(m.err, err)
}

// forward makes the engine report the units of a call, and returns its answer
// without them, as the contestant asked for it.
func (m *meter) forward(engine string, w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var call map[string]json.RawMessage
	if err := json.Unmarshal(body, &call); err != nil {
		return err
	}
	call["ReturnConsumedCapacity"] = json.RawMessage(`"TOTAL"`)
	asking, err := json.Marshal(call)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, engine, bytes.NewReader(asking))
	if err != nil {
		return err
	}
	for _, name := range []string{"X-Amz-Target", "Authorization", "X-Amz-Date", "Content-Type"} {
		request.Header[name] = r.Header[name]
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if answer, err = m.count(operation, answer); err != nil {
		return err
	}
	for _, name := range []string{"Content-Type", "X-Amzn-Requestid"} {
		w.Header()[name] = response.Header[name]
	}
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE(answer)))
	w.WriteHeader(response.StatusCode)
	_, err = w.Write(answer)
	return err
}

// count counts the units of an answer, and returns it without them. A refused
// write does not report its units: it is billed by the size of the current item
// (developer guide, "Capacity unit consumption for write operations"), which the
// refusal contains.
func (m *meter) count(operation string, answer []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(answer, &fields); err != nil {
		return nil, err
	}
	units := 0.0
	if used, reported := fields["ConsumedCapacity"]; reported {
		type consumed struct{ CapacityUnits float64 }
		var all []consumed // of a batch; of another call one
		if err := json.Unmarshal(used, &all); err != nil {
			all = make([]consumed, 1)
			if err := json.Unmarshal(used, &all[0]); err != nil {
				return nil, err
			}
		}
		for _, c := range all {
			units += c.CapacityUnits
		}
		delete(fields, "ConsumedCapacity")
		var err error
		if answer, err = json.Marshal(fields); err != nil {
			return nil, err
		}
	} else if item, refused := fields["Item"]; refused {
		var attributes map[string]map[string]any
		if err := json.Unmarshal(item, &attributes); err != nil {
			return nil, err
		}
		units = float64((itemSize(attributes) + 1023) / 1024)
	} else {
		return nil, fmt.Errorf("peers: an answer to %s reports no units: %.200s", operation, answer)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if strings.Contains(operation, "Get") {
		m.reads += units
	} else {
		m.writes += units
	}
	return answer, nil
}

// itemSize returns the size of an item in bytes (developer guide, "DynamoDB item
// sizes and formats").
func itemSize(attributes map[string]map[string]any) (n int) {
	for name, value := range attributes {
		n += len(name) + valueSize(value)
	}
	return n
}

// valueSize returns the size of a value of the types that the contestants write.
func valueSize(value any) (n int) {
	typed, _ := value.(map[string]any)
	for kind, v := range typed {
		switch v := v.(type) {
		case map[string]any:
			n += 3
			for name, value := range v {
				n += 1 + len(name) + valueSize(value)
			}
		case []any:
			n += 3
			for _, value := range v {
				n += 1 + valueSize(value)
			}
		case string:
			switch kind {
			case "S":
				n += len(v)
			case "N":
				n += (len(v)+1)/2 + 1
			case "B":
				n += base64.StdEncoding.DecodedLen(len(v)) - strings.Count(v, "=")
			}
		}
	}
	return n
}

// meteredListener counts the bytes of its connections.
type meteredListener struct {
	net.Listener
	m *meter
}

func (l meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return meteredConn{c, l.m}, err
}

type meteredConn struct {
	net.Conn
	m *meter
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.sent.Add(int64(n))
	return n, err
}

func (c meteredConn) Write(b []byte) (int, error) {
	c.m.received.Add(int64(len(b))) // first, because the client goes on as soon as it has them
	return c.Conn.Write(b)
}

// storeCall is the time of a call of the store that the prices assume. DynamoDB takes
// several milliseconds, and DynamoDB Local less than one.
const storeCall = 5 * time.Millisecond

// newSlowProxy returns a proxy for the engine at that address whose answers come storeCall
// after their requests.
func newSlowProxy(engine string) (*httptest.Server, error) {
	to, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	pass.Transport = slowTransport{&http.Transport{MaxIdleConnsPerHost: 64}} // as many as callers
	return httptest.NewServer(pass), nil
}

type slowTransport struct{ http.RoundTripper }

func (t slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	end := time.Now().Add(storeCall)
	answer, err := t.RoundTripper.RoundTrip(r)
	time.Sleep(time.Until(end))
	return answer, err
}
