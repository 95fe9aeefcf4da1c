package idempotent

import (
	"context"
	"fmt"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

// StoredOutcome returns the stored outcome of the completed record r: the
// encoding, which is the name of a [Codec] or [driver.EncodingFinal], and the
// encoded bytes, uncompressed. It fetches and verifies a large result that is
// stored beside its record. It is for tools that show records; a handler's replay
// is decoded.
//
// It returns [*ReplayUnavailableError] if the result was omitted, is missing or
// was altered, or if the record is not completed.
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
