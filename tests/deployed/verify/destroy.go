// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
)

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
