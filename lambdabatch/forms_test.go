// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// forms returns the events in testdata/forms.json. Those of pipes have the form of the
// examples in EventBridge's user guide (eb-pipes-sqs, eb-pipes-kinesis, eb-pipes-dynamodb,
// eb-pipes-msk, eb-pipes-kafka), that of S3 the form in Amazon S3's (ev-events).
func forms(t *testing.T) (all map[string]json.RawMessage) {
	t.Helper()
	data, err := os.ReadFile("testdata/forms.json")
	if err := cmp.Or(err, json.Unmarshal(data, &all)); err != nil {
		t.Fatal(err)
	}
	return all
}

// Every constructor gets every event of aws-lambda-go's tests and every form above. Its
// handler runs with the content of those of its source. Any other is refused with a reason,
// also if the functions that read a message do not look at it, and HandOver takes
// everything: what is acknowledged and was not understood is lost.
// ([lambdabatch.AsyncInvoke] and [lambdabatch.StepFunctions] take any form.)
func TestEveryForm(t *testing.T) {
	t.Parallel()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-lambda-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "events", "testdata", "*.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d events, %v", len(files), err)
	}
	all := forms(t)
	for name, form := range maps.Clone(all) {
		if strings.HasPrefix(name, "pipe of ") { // what a hand-written handler of a pipe would make of it
			all["list, "+name] = json.RawMessage(`{"Records":` + string(form) + `}`)
		}
	}
	for _, name := range files {
		if all[strings.TrimSuffix(filepath.Base(name), ".json")], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	queue, s3 := []string{"list, pipe of SQS", "sqs-event"}, []string{"s3-event", "s3-event-with-decoded", "s3-glacier-event", "s3-intelligenttier-event", "s3-lifecycle-event", "s3-replication-event", "s3-restore-event"}
	own := map[string][]string{
		"SQS": queue, "Pipe of SQS": {"pipe of SQS"}, "SQSFIFO": queue, "Pipe of SQSFIFO": {"pipe of SQS"},
		"Kinesis": {"kinesis-event", "kinesis-time-window-event"}, "Pipe of Kinesis": {"pipe of Kinesis"},
		"DynamoDB": {"dynamodb-event", "dynamodb-time-window-event", "list, pipe of DynamoDB"}, "Pipe of DynamoDB": {"pipe of DynamoDB"},
		"Kafka": {"kafka-event"}, "Pipe of Kafka": {"pipe of Kafka", "pipe of Kafka, self-managed"},
		"SNS": {"cloudwatch-alarm-sns-payload-multiple-metrics", "cloudwatch-alarm-sns-payload-single-metric", "sns-event"}, "FromSNS": {"SNS in a queue"},
		"S3": s3, "FromS3": s3, "FromS3 EventBridge": {"S3 through EventBridge"},
	}
	for name, event := range all {
		if strings.Contains(string(event), `"detail-type":`) {
			own["EventBridge"] = append(own["EventBridge"], name)
		}
	}
	ran := 0
	for source, build := range constructors {
		for name, event := range all {
			w := newFixture(t)
			var got []string
			_, err := lambda.NewHandler(build(w, &got)).Invoke(w.invocation(), event)
			if slices.Contains(own[source], name) {
				if ran++; err != nil || len(got) == 0 || slices.Contains(got, "") {
					t.Errorf("%s: its own %s: %v, handlers got %q", source, name, err, got)
				}
			} else if err == nil || err.Error() == "" || len(got) > 0 {
				t.Errorf("%s: the foreign %s: %v, handlers got %q", source, name, err, got)
			}
		}
	}
	t.Logf("%d events (%d of aws-lambda-go), %d constructors: %d understood, %d refused", len(all), len(files), len(constructors), ran, len(all)*len(constructors)-ran)
}

// A record without what its source always sends, or of another source, refuses the event
// before the first message is read: no answer acknowledges what was not understood.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	called := func(o *lambdabatch.Options) {
		o.Unwrap = func(context.Context, *lambdabatch.Message) error { t.Error("Unwrap was called"); return nil }
		o.HandOver = func(context.Context, *lambdabatch.Message, error) error { t.Error("HandOver was called"); return nil }
	}
	refused := func(name, want string, err error) {
		if want = "lambdabatch: " + want + "; it comes from another source"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	for want, change := range map[string]func(*events.SQSMessage){
		`record 1 of the event has no messageId`:                     func(m *events.SQSMessage) { m.MessageId = "" },
		`record 1 of the event has the eventSource "aws:codecommit"`: func(m *events.SQSMessage) { m.EventSource = "aws:codecommit" },
	} {
		event := load[events.SQSEvent](t, "sqs")
		change(&event.Records[1])
		_, err := lambdabatch.SQS(w.guard, w.handle, w.options(called))(w.invocation(), event)
		refused("SQS", "SQS: "+want, err)
		_, err = lambdabatch.SQSFIFO(w.guard, w.handle, w.options(called))(w.invocation(), event)
		refused("SQSFIFO", "SQSFIFO: "+want, err)
	}
	for i, change := range []func(*events.KinesisEventRecord){
		func(r *events.KinesisEventRecord) { r.EventSource = "aws:dynamodb" },
		func(r *events.KinesisEventRecord) { r.Kinesis = events.KinesisRecord{} },
		func(r *events.KinesisEventRecord) { r.EventID = "" },
	} {
		event := load[events.KinesisEvent](t, "kinesis")
		change(&event.Records[1])
		_, err := lambdabatch.Kinesis(w.guard, w.handle, w.options(called))(w.invocation(), event)
		want := `record 1 of the event has the eventSource "aws:dynamodb"`
		if i > 0 {
			want = "record 1 of the event has no kinesis.sequenceNumber and eventID"
		}
		refused("Kinesis", "Kinesis: "+want, err)
	}
	for want, change := range map[string]func(*events.DynamoDBEventRecord){
		`record 1 of the event has no dynamodb.SequenceNumber and eventID`: func(r *events.DynamoDBEventRecord) { r.Change = events.DynamoDBStreamRecord{} },
		`record 1 of the event has the eventSource "aws:kinesis"`:          func(r *events.DynamoDBEventRecord) { r.EventSource = "aws:kinesis" },
	} {
		event := load[events.DynamoDBEvent](t, "dynamodb")
		change(&event.Records[1])
		_, err := lambdabatch.DynamoDB(w.guard, w.handleImage, w.options(called))(w.invocation(), event)
		refused("DynamoDB", "DynamoDB: "+want, err)
	}
	for want, change := range map[string]func(*events.KafkaEvent){
		`record 1 of the event has no topic`:                  func(e *events.KafkaEvent) { e.Records["orders-0"][1].Topic = "" },
		`record 0 of the event has the eventSource "aws:rmq"`: func(e *events.KafkaEvent) { e.EventSource = "aws:rmq" },
	} {
		event := load[events.KafkaEvent](t, "kafka")
		change(&event)
		_, err := w.kafka(called)(w.invocation(), event)
		refused("Kafka", "Kafka: "+want, err)
	}
	w.wantRuns()
}

// Every error of the package itself has its text in the log: it is a logs.Error, or of a type
// that states its text. The errors of a constructor are panics.
func TestEveryRefusalHasItsText(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := 0
	methods := map[string][]string{} // by type
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv != nil {
				receiver := strings.TrimLeft(types.ExprString(f.Recv.List[0].Type), "*")
				methods[receiver] = append(methods[receiver], f.Name.Name)
			}
			if ok && slices.Contains([]string{"newBatch", "newEngine", "validate"}, f.Name.Name) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					switch made := types.ExprString(call.Fun); made {
					case "logs.Error":
						texts++
					case "errors.New", "fmt.Errorf":
						t.Errorf("%s: the text of this error is not logged: %s", name, types.ExprString(call))
					}
				}
				return true
			})
		}
	}
	for of, names := range methods {
		if slices.Contains(names, "Error") && !slices.Contains(names, "LogValue") {
			t.Errorf("the text of a %s is not logged", of)
		}
	}
	if texts < 10 {
		t.Errorf("found %d errors with a text", texts)
	}
}

// constructors return handlers that append the content of what they get.
var constructors = map[string]func(*fixture, *[]string) any{
	"SQS":      func(w *fixture, got *[]string) any { return lambdabatch.SQS(w.guard, content(got), blind(got)) },
	"SQSFIFO":  func(w *fixture, got *[]string) any { return lambdabatch.SQSFIFO(w.guard, content(got), blind(got)) },
	"Kinesis":  func(w *fixture, got *[]string) any { return lambdabatch.Kinesis(w.guard, content(got), blind(got)) },
	"DynamoDB": func(w *fixture, got *[]string) any { return lambdabatch.DynamoDB(w.guard, content(got), blind(got)) },
	"Kafka":    func(w *fixture, got *[]string) any { return lambdabatch.Kafka(w.guard, content(got), blind(got)) },
	"Pipe of SQS": func(w *fixture, got *[]string) any {
		return lambdabatch.Pipe(lambdabatch.SQS(w.guard, content(got), blind(got)))
	},
	"Pipe of SQSFIFO": func(w *fixture, got *[]string) any {
		return lambdabatch.Pipe(lambdabatch.SQSFIFO(w.guard, content(got), blind(got)))
	},
	"Pipe of Kinesis": func(w *fixture, got *[]string) any {
		return lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, content(got), blind(got)))
	},
	"Pipe of DynamoDB": func(w *fixture, got *[]string) any {
		return lambdabatch.Pipe(lambdabatch.DynamoDB(w.guard, content(got), blind(got)))
	},
	"Pipe of Kafka": func(w *fixture, got *[]string) any {
		return lambdabatch.Pipe(lambdabatch.Kafka(w.guard, content(got), blind(got)))
	},
	"EventBridge": func(w *fixture, got *[]string) any { return single(w, lambdabatch.EventBridge("take"), got, detail) },
	"SNS": func(w *fixture, got *[]string) any {
		return single(w, lambdabatch.SNS("take"), got, func(e events.SNSEvent) string { return e.Records[0].SNS.Message })
	},
	"S3": func(w *fixture, got *[]string) any { return single(w, lambdabatch.S3("take"), got, object) },
	"FromSNS": func(w *fixture, got *[]string) any {
		return queued(w, got, func(s string) string { return s }, blind(got), lambdabatch.FromSNS)
	},
	"FromS3":             func(w *fixture, got *[]string) any { return queued(w, got, object, lambdabatch.FromS3) },
	"FromS3 EventBridge": func(w *fixture, got *[]string) any { return queued(w, got, detail, lambdabatch.FromS3) },
}

func detail(e events.EventBridgeEvent) string { return string(e.Detail) }

func object(e events.S3Event) string { return e.Records[0].S3.Object.Key }

func content(got *[]string) func(context.Context, string) error {
	return func(_ context.Context, body string) error { *got = append(*got, body); return nil }
}

// blind sets functions that do not look at the message.
func blind(got *[]string) func(*lambdabatch.Options) {
	return func(o *lambdabatch.Options) {
		o.Operation = "take"
		o.ID = func(context.Context, *lambdabatch.Message) (string, error) { return "any", nil }
		o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return "all", nil }
		o.Fingerprint = func(context.Context, *lambdabatch.Message) (idempotent.Fingerprint, error) {
			return idempotent.FingerprintBytes(nil), nil
		}
		o.HandOver = func(context.Context, *lambdabatch.Message, error) error { *got = append(*got, ""); return nil }
	}
}

func single[E any](w *fixture, key idempotent.KeyFunc[E], got *[]string, of func(E) string) any {
	return idempotent.Wrap(w.guard, key, func(_ context.Context, e E) (struct{}, error) { *got = append(*got, of(e)); return struct{}{}, nil })
}

// queued returns a handler of the body of a message, which returns why the message was
// refused.
func queued[E any](w *fixture, got *[]string, of func(E) string, optFns ...func(*lambdabatch.Options)) any {
	return func(ctx context.Context, body json.RawMessage) (struct{}, error) {
		var reason error
		h := lambdabatch.SQS(w.guard, func(_ context.Context, e E) error { *got = append(*got, of(e)); return nil }, append(optFns, func(o *lambdabatch.Options) {
			o.Operation = "take"
			o.HandOver = func(_ context.Context, _ *lambdabatch.Message, err error) error { reason = err; return nil }
		})...)
		response, err := h(ctx, bodies(string(body)))
		if len(response.BatchItemFailures) > 0 {
			reason = errors.New(w.log())
		}
		return struct{}{}, cmp.Or(err, reason)
	}
}
