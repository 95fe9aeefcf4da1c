package idempotent

import (
	"context"
	"fmt"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

// StoredOutcome returns what the completed record r keeps as its outcome: the name of
// the encoding, which is that of a [Codec] or [driver.EncodingFinal], and the encoded
// bytes, uncompressed. A large result is fetched from beside its record and
// checked. It is for tools that show records; a handler's replay is decoded.
//
// A result that was omitted, is missing or was altered, and a record that is not
// completed, are a [*ReplayUnavailableError].
func (g *Guard) StoredOutcome(ctx context.Context, r driver.Record) (encoding string, data []byte, err error) {
	g.mustExist("StoredOutcome")
	unavailable := func(reason string) error {
		return &ReplayUnavailableError{RecordID: r.ID, Reason: reason, Ref: r.Ref}
	}
	switch {
	case r.State != driver.StateCompleted:
		return "", nil, unavailable(fmt.Sprintf("the record is %s", r.State))
	case r.Encoding == driver.EncodingOmitted:
		return "", nil, unavailable("the result could not be stored")
	}
	whole, err := g.withChunks(ctx, &r)
	if err != nil {
		return "", nil, err
	}
	encoding = strings.TrimSuffix(r.Encoding, encodingCompressed)
	if data, err = unpack(r.Encoding, encoding, whole.Result); err != nil {
		return "", nil, unavailable(err.Error())
	}
	return encoding, data, nil
}
