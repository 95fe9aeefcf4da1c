// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// ErrKeyExpired is the cause of an [*Error] for a name whose key is older than
// [Options.Retention]. The server may have forgotten the key, so a request with it
// could have the effect a second time. Find out whether the request was executed.
// Then call [Transport.Forget], and send it again if it was not.
var ErrKeyExpired = errors.New("the key of this name is older than Options.Retention")

// pending is a folder of keys: a file for each name, which is called by the hash of
// the name. A file appears with its whole content, by a hard link to a file that is
// on the disk already, and only if no other process was faster. So no lock is
// needed, and a file is never half written.
type pending struct {
	dir       string
	retention time.Duration
	sync      func(dir string) error // makes new names in a folder survive a loss of power
}

// entry is the content of a file.
type entry struct {
	Key     string    `json:"key"`
	Created time.Time `json:"created"`
}

// open creates the folder unless it exists.
func (p pending) open() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	return p.sync(filepath.Dir(p.dir))
}

// key returns the stored key of name, after it has stored a new one if the name is
// new. The key survives a loss of power when the method returns.
func (p pending) key(name string) (string, error) {
	file := p.file(name)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.create(file); err != nil {
			return "", fmt.Errorf("store its key in PendingDir: %w", err)
		}
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("read its key in PendingDir: %w", err)
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil || e.Key == "" {
		return "", fmt.Errorf("the key in the file %s is damaged; find out whether the request was executed, then call Forget", file)
	}
	switch age := time.Since(e.Created); {
	case age < -maxAhead:
		return "", fmt.Errorf("the key in the file %s is dated in the future (%s), so its age is not known; correct the clock, or find out whether the request was executed, then call Forget", file, e.Created.Format(time.RFC3339Nano))
	case age >= p.retention:
		return "", ErrKeyExpired
	}
	return e.Key, p.sync(p.dir) // another process may have created it a moment ago
}

// maxAhead is how far ahead the clock can have been when the key was created.
const maxAhead = time.Minute

// create stores a new key, unless another process stores one first.
func (p pending) create(file string) error {
	temp, err := os.CreateTemp(p.dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	err = errors.Join(json.NewEncoder(temp).Encode(entry{newKey(), time.Now()}), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(temp.Name(), file); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// forget removes the key of name. The removal survives a loss of power: otherwise the
// next request of that name could get the response to this one.
func (p pending) forget(name string) error {
	if err := os.Remove(p.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.sync(p.dir)
}

func (p pending) file(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(p.dir, hex.EncodeToString(sum[:]))
}

// syncDir syncs a folder. Windows cannot do that: NTFS orders its own changes.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Form is how a key is written in the header.
type Form uint8

const (
	// IETF writes a key in double quotes, as a String of RFC 9651. The default.
	IETF Form = iota
	// Stripe writes a key without quotes.
	Stripe
	// UUID writes a UUID without quotes. Another key becomes a UUID that is derived
	// from it: the one that idempotent.AsUUID returns.
	UUID
)

// nameKey is the key of a name in a context.
type nameKey struct{}

// WithName returns a context for the requests of the logical request name: all of
// them have the key that is stored in [Options.PendingDir] under that name, also
// after a restart of the program. Choose a name that the program finds again, such
// as "charge order 17", and without secrets: a hash of it is stored, which reveals a
// name that can be guessed. Call [Transport.Forget] when the outcome is recorded.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

func nameOf(ctx context.Context) (name string, named bool) {
	name, named = ctx.Value(nameKey{}).(string)
	return name, named
}

// write returns the value of the header. Its error does not contain the key.
func (f Form) write(key string) (string, error) {
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", fmt.Errorf("the key from ContextKey has a byte that is not printable ASCII at %d", i)
		}
	}
	switch f {
	case Stripe:
		if strings.Contains(key, ",") || strings.Trim(key, " ") != key {
			return "", errors.New("the key from ContextKey has a comma, or a space at its begin or end, which the form Stripe does not allow")
		}
		return key, nil
	case UUID:
		if !uuid.MatchString(key) {
			sum := sha256.Sum256([]byte("uuid\x00" + key))
			key = asUUID(sum[:])
		}
		return key, nil
	case IETF:
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`, nil
}

// uuid matches the versions that are random or derived from the time (RFC 9562).
var uuid = regexp.MustCompile(`^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[47][0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}$`)

// newKey returns a random UUID.
func newKey() string {
	random := make([]byte, 16)
	rand.Read(random) // never fails
	return asUUID(random)
}

// asUUID returns the first 16 bytes of b as a UUID of version 4.
func asUUID(b []byte) string {
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // the variant of RFC 9562
	h := hex.EncodeToString(b[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
