// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/once-lambda/once/internal/kit/engine"
)

// build returns the archives of the function and of its extension, which contain the
// same program. For tests, which need them often, built is the folder of an earlier
// bundle.
func build(ctx context.Context, arch, built string) (function, extension []byte, err error) {
	dir := built
	if dir == "" {
		if dir, err = os.MkdirTemp("", "once-verify"); err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
		if err := bundle(ctx, arch, dir); err != nil {
			return nil, nil, err
		}
	}
	function, err = os.ReadFile(filepath.Join(dir, "function-"+arch+".zip"))
	if err != nil {
		return nil, nil, err
	}
	r, err := zip.NewReader(bytes.NewReader(function), int64(len(function)))
	if err != nil {
		return nil, nil, err
	}
	program, err := r.Open("bootstrap")
	if err != nil {
		return nil, nil, err
	}
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	header := &zip.FileHeader{Name: "extensions/verify", Method: zip.Deflate}
	header.SetMode(0o755)
	file, err := w.CreateHeader(header)
	if err != nil {
		return nil, nil, err
	}
	if _, err := io.Copy(file, program); err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	return function, zipped.Bytes(), nil
}

// bundle builds the function into a folder.
func bundle(ctx context.Context, arch, dir string) error {
	_, err := output(ctx, nil, filepath.Join(engine.Root(), "examples/charge-lambda/stack"), "go", "run", "./bundle", "-arch", arch, "-o", dir,
		"function=github.com/once-lambda/once/tests/deployed/verify/function")
	return err
}

// template synthesises the stack in another process, because the CDK needs Node, and
// its end must not end this one.
func template(ctx context.Context, s shape) ([]byte, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return nil, errors.New("node is missing: the CDK needs Node 22 or 24")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return output(ctx, text, "", self, templateCommand)
}

// output runs a program and returns its standard output. All processes that it
// started end with it, and not by an interrupt of this one.
func output(ctx context.Context, stdin []byte, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "CDK_VALIDATION=false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=18,20")
	var printed, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complained
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, &complained)
	}
	return printed.Bytes(), nil
}

// deploy creates the bucket and the stack, and reads the outputs of the stack.
func (w *world) deploy(ctx context.Context, function, extension, template []byte) error {
	if err := w.createBucket(ctx); err != nil {
		return fmt.Errorf("the bucket was not created: %w", err)
	}
	w.note("bucket %s created", nameOf(w.ID))
	for object, content := range map[string][]byte{functionArchive: function, extensionArchive: extension} {
		put := &s3.PutObjectInput{Bucket: aws.String(nameOf(w.ID)), Key: aws.String(object), Body: bytes.NewReader(content)}
		if _, err := w.s3.PutObject(ctx, put); err != nil {
			return err
		}
	}
	w.note("archives uploaded")
	_, err := w.cloudformation.CreateStack(ctx, &cloudformation.CreateStackInput{
		StackName: aws.String(nameOf(w.ID)), TemplateBody: aws.String(string(template)), // at most 51,200 bytes
		Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
		OnFailure:    cfntypes.OnFailureDoNothing, // the reasons are read before it is destroyed
		Tags:         []cfntypes.Tag{{Key: aws.String(tag), Value: &w.ID}},
	})
	if err != nil {
		return fmt.Errorf("the stack was not created: %w", err)
	}
	w.note("stack %s requested", nameOf(w.ID))
	stack, err := w.settled(ctx)
	if err != nil {
		return err
	}
	if stack.StackStatus != cfntypes.StackStatusCreateComplete {
		return fmt.Errorf("the stack is %s: %s", stack.StackStatus, w.failures(ctx))
	}
	w.outputs = map[string]string{}
	for _, o := range stack.Outputs {
		w.outputs[strings.TrimSuffix(*o.OutputKey, "Output")] = *o.OutputValue
	}
	w.note("stack created")
	return nil
}

// tag is the key of the tag with the id, on everything.
const tag = "once-verify"

func (w *world) createBucket(ctx context.Context) error {
	bucket := aws.String(nameOf(w.ID))
	create := &s3.CreateBucketInput{Bucket: bucket}
	if w.Region != "us-east-1" {
		create.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraint(w.Region)}
	}
	if _, err := w.s3.CreateBucket(ctx, create); err != nil {
		return err
	}
	_, err1 := w.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: bucket, Tagging: &s3types.Tagging{
		TagSet: []s3types.Tag{{Key: aws.String(tag), Value: &w.ID}},
	}})
	yes := aws.Bool(true)
	_, err2 := w.s3.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{
		Bucket: bucket, PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
			BlockPublicAcls: yes, BlockPublicPolicy: yes, IgnorePublicAcls: yes, RestrictPublicBuckets: yes,
		},
	})
	_, err3 := w.s3.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
		Bucket: bucket, LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: []s3types.LifecycleRule{{
			ID: aws.String("one-day"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
			Expiration: &s3types.LifecycleExpiration{Days: aws.Int32(1)},
		}}},
	})
	return errors.Join(err1, err2, err3)
}

// stack returns the stack, or nil if it does not exist.
func (w *world) stack(ctx context.Context) (*cfntypes.Stack, error) {
	out, err := w.cloudformation.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String(nameOf(w.ID))})
	switch {
	case err != nil && strings.Contains(err.Error(), "does not exist"):
		return nil, nil
	case err != nil:
		return nil, err
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
		if err := pause(ctx, w.interval()); err != nil {
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
func (w *world) interval() time.Duration {
	if w.Local {
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

// pause waits, and returns an error if the context ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
