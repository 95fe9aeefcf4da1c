package dynamostore

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// One unreadable step makes the record unreadable, at every position.
func TestDecode_OneDamagedStep(t *testing.T) {
	t.Parallel()
	r := driver.Record{
		ID: "charge#1", State: driver.StateUnknown, Recovery: idempotent.Resume, Owner: driver.Owner{1}, Version: driver.Version{1},
		Attempt: 1, Fingerprint: idempotent.FingerprintBytes([]byte("r")), Created: time.UnixMilli(1), LeaseEnd: time.UnixMilli(2), Due: time.UnixMilli(3),
	}
	for n := range 30 {
		r.Steps = append(r.Steps, driver.StepRecord{Name: fmt.Sprintf("step-%02d", n), Attempt: 1, At: time.UnixMilli(1)})
	}
	it, err := encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(it); err != nil {
		t.Fatal(err)
	}
	step := it[attrSteps].(*types.AttributeValueMemberM).Value["step-15"].(*types.AttributeValueMemberM)
	delete(step.Value, stepAttempt)
	if _, err := decode(it); err == nil {
		t.Error("a record with an invalid step was read")
	}
}

// A record that was given up and has no due time would be in no list.
func TestEncode_ExhaustedAndNeverDue(t *testing.T) {
	t.Parallel()
	r := driver.Record{ID: "charge#1", State: driver.StateUnknown, Exhausted: true}
	if _, err := encode(&r); err == nil {
		t.Error("it was written")
	}
	r.Due = time.UnixMilli(1)
	if _, err := encode(&r); err != nil {
		t.Error(err)
	}
}
