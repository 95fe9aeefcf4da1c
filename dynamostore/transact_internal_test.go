package dynamostore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The largest transaction is 4 MB to the byte, its record included; a record that
// cannot be is refused before it is sent.
func TestTransactInput_Size(t *testing.T) {
	t.Parallel()
	s := &Store{table: "once"}
	key := idempotent.Key{Operation: "charge", Scope: "tenant", ID: "1"}
	r := driver.Record{ID: key.RecordID(), State: driver.StateInProgress, Reason: driver.ReasonClaimed, Attempt: 1, Fingerprint: idempotent.FingerprintBytes(nil), Created: time.UnixMilli(1), LeaseEnd: time.UnixMilli(2)}
	record, err := encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	for over, fits := range map[int]bool{0: true, 1: false} {
		room := maxTransactSize - itemSize(record) - len(PartitionKey) + over
		items := []types.TransactWriteItem{{Delete: &types.Delete{Key: item{PartitionKey: text(strings.Repeat("x", room))}}}}
		if _, err := s.transactInput(&r, driver.Version{}, items); fits != (err == nil) || err != nil && !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("%d bytes too many: %v", over, err)
		}
	}
	large := r
	large.Ref = strings.Repeat("x", maxItem)
	if _, err := s.transactInput(&large, driver.Version{}, nil); !errors.Is(err, idempotent.ErrNotApplied) || !errors.Is(err, idempotent.ErrTooLarge) {
		t.Errorf("a large record: %v", err)
	}
	odd := r
	odd.Steps = []driver.StepRecord{{}}
	if _, err := s.transactInput(&odd, driver.Version{}, nil); !errors.Is(err, idempotent.ErrNotApplied) {
		t.Errorf("a record that does not encode: %v", err)
	}
	if n := transactItemSize(&types.TransactWriteItem{}); n != 0 {
		t.Errorf("an item that says nothing has %d bytes", n)
	}
}
