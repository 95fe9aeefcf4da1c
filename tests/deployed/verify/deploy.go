// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/once-lambda/once/internal/kit/engine"
)

// build builds the function and returns its archive. For tests, which need it often, built is
// the archive of an earlier build.
func build(arch, built string) ([]byte, error) {
	if built != "" {
		return os.ReadFile(built)
	}
	dir := filepath.Join(engine.Root(), reports)
	bundle := exec.Command("go", "run", "./bundle", "-arch", arch, "-o", dir, "function=github.com/once-lambda/once/tests/deployed/verify/function")
	bundle.Dir = filepath.Join(engine.Root(), "examples/charge-lambda/stack")
	if _, err := engine.Output(bundle); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "function-"+arch+".zip"))
}

//go:embed extension.sh
var extension []byte

// layer returns the archive of a layer with the extension.
func layer() ([]byte, error) {
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	header := &zip.FileHeader{Name: "extensions/verify", Method: zip.Deflate}
	header.SetMode(0o755)
	file, err := w.CreateHeader(header)
	if err == nil {
		_, err = file.Write(extension)
	}
	err = errors.Join(err, w.Close())
	return zipped.Bytes(), err
}

// templateOf synthesises the stack in another process, because the CDK needs Node, and
// its end must not end this one.
func templateOf(s shape) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", errors.New("node is missing: the CDK needs Node 22 or 24")
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	text, _ := json.Marshal(s) // texts alone
	cmd := exec.Command(self, templateCommand)
	cmd.Stdin = bytes.NewReader(text)
	cmd.Env = append(os.Environ(), "CDK_VALIDATION=false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=18,20")
	return engine.Output(cmd)
}

// deploy creates the bucket and the stack, and reads the outputs of the stack.
func (w *world) deploy(ctx context.Context, function []byte, template string) error {
	extended, err := layer()
	if err != nil {
		return err
	}
	name := aws.String(nameOf(w.ID))
	create := &s3.CreateBucketInput{Bucket: name} // like each new bucket it is private
	if w.Region != "us-east-1" {
		create.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraint(w.Region)}
	}
	if _, err := w.s3.CreateBucket(ctx, create); err != nil {
		return fmt.Errorf("the bucket was not created: %w", err)
	}
	w.note("bucket %s created", *name)
	for object, content := range map[string][]byte{"function.zip": function, "extension.zip": extended} {
		if _, err := w.s3.PutObject(ctx, &s3.PutObjectInput{Bucket: name, Key: &object, Body: bytes.NewReader(content)}); err != nil {
			return err
		}
	}
	_, err = w.cloudformation.CreateStack(ctx, &cloudformation.CreateStackInput{
		StackName: name, TemplateBody: &template, // at most 51,200 bytes
		Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
		OnFailure:    cfntypes.OnFailureDoNothing, // the reasons are read before it is destroyed
		Tags:         []cfntypes.Tag{{Key: aws.String(tag), Value: &w.ID}},
	})
	if err != nil {
		return fmt.Errorf("the stack was not created: %w", err)
	}
	w.note("stack %s requested", *name)
	stack, err := w.settled(ctx)
	if err != nil {
		return err
	}
	if stack.StackStatus != cfntypes.StackStatusCreateComplete {
		return fmt.Errorf("the stack is %s: %s", stack.StackStatus, w.failures(ctx))
	}
	w.outputs = map[string]string{}
	for _, o := range stack.Outputs {
		w.outputs[*o.OutputKey] = *o.OutputValue
	}
	w.note("stack created")
	return nil
}

// tag is the key of the tag with the id, on the stack and what it contains.
const tag = "once-verify"

// stack returns the stack, or nil if it does not exist.
func (w *world) stack(ctx context.Context) (*cfntypes.Stack, error) {
	out, err := w.cloudformation.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String(nameOf(w.ID))})
	switch {
	case err != nil && strings.Contains(err.Error(), "does not exist"):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if out.Stacks[0].StackStatus == cfntypes.StackStatusDeleteComplete {
		return nil, nil
	}
	return &out.Stacks[0], nil
}

// settled waits until nothing changes the stack any more. It returns nil if there is
// no stack.
func (w *world) settled(ctx context.Context) (*cfntypes.Stack, error) {
	for {
		stack, err := w.stack(ctx)
		if err != nil || stack == nil || !strings.HasSuffix(string(stack.StackStatus), "_IN_PROGRESS") {
			return stack, err
		}
		if err := pause(ctx, interval); err != nil {
			return nil, err
		}
	}
}

// failures returns why resources of the stack failed.
func (w *world) failures(ctx context.Context) string {
	out, err := w.cloudformation.DescribeStackEvents(ctx, &cloudformation.DescribeStackEventsInput{StackName: aws.String(nameOf(w.ID))})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, e := range out.StackEvents {
		if reason := aws.ToString(e.ResourceStatusReason); reason != "" && strings.HasSuffix(string(e.ResourceStatus), "_FAILED") {
			all = append(all, aws.ToString(e.LogicalResourceId)+": "+reason)
		}
	}
	return strings.Join(all, "; ")
}

// interval is the pause between two looks at something slow.
const interval = 3 * time.Second

// kept is what AWS keeps after a run.
const kept = `AWS keeps the custom metrics of the namespace %s for 15 months, and bills none without new values.
It deletes the key of the table after seven days, and does not bill it until then.
`

// destroy removes everything that a run created, in whatever state it is. It goes on
// after an error, and can be called again. A stack of the same name that no run created
// is left, with everything else.
func (w *world) destroy(ctx context.Context) error {
	stack, err := w.settled(ctx) // a stack that is being created cannot be deleted everywhere
	if err == nil && stack != nil && !slices.ContainsFunc(stack.Tags, func(t cfntypes.Tag) bool { return *t.Key == tag && *t.Value == w.ID }) {
		return fmt.Errorf("the stack %s is left: it has not the tag %s of a run", *stack.StackName, tag)
	}
	if err == nil && stack != nil {
		err = w.removeStack(ctx)
	}
	return errors.Join(err, w.removeBucket(ctx))
}

func (w *world) removeStack(ctx context.Context) error {
	var stack *cfntypes.Stack
	const attempts = 3 // a resource may still be in use at the first one
	for range attempts {
		if _, err := w.cloudformation.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: aws.String(nameOf(w.ID))}); err != nil {
			return fmt.Errorf("the stack %s is left: %w", nameOf(w.ID), err)
		}
		w.note("removal of stack %s requested", nameOf(w.ID))
		var err error
		if stack, err = w.settled(ctx); err != nil {
			return err
		}
		if stack == nil {
			w.note("stack removed")
			return nil
		}
	}
	return fmt.Errorf("the stack %s is left as %s: %s", nameOf(w.ID), stack.StackStatus, w.failures(ctx))
}

// removeBucket removes the bucket with its objects, which have one version each.
func (w *world) removeBucket(ctx context.Context) error {
	bucket := aws.String(nameOf(w.ID))
	left := func(err error) error { return fmt.Errorf("the bucket %s is left: %w", *bucket, err) }
	objects, err := w.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket})
	if errors.As(err, new(*s3types.NoSuchBucket)) {
		return nil
	}
	if err != nil {
		return left(err)
	}
	for _, o := range objects.Contents {
		if _, err := w.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: o.Key}); err != nil {
			return left(err)
		}
	}
	if _, err := w.s3.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket}); err != nil {
		return left(err)
	}
	w.note("bucket removed")
	return nil
}
