// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// kept is what AWS keeps after a run.
const kept = `AWS keeps the custom metrics of the namespace %s for 15 months, and bills none without new values.
With --kms it deletes the key after seven days, and does not bill it until then.
`

// destroy removes everything that a run created, in whatever state it is. It goes on
// after an error, and can be called again.
func (w *world) destroy(ctx context.Context) error {
	return errors.Join(w.removeStack(ctx), w.removeBucket(ctx), w.removeLogs(ctx), w.removeReplicas(ctx))
}

func (w *world) removeStack(ctx context.Context) error {
	stack, err := w.settled(ctx) // a stack that is being created cannot be deleted everywhere
	if err != nil || stack == nil {
		return err
	}
	const attempts = 3 // a resource may still be in use at the first one
	for range attempts {
		if _, err := w.cloudformation.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: aws.String(nameOf(w.ID))}); err != nil {
			return fmt.Errorf("the stack %s is left: %w", nameOf(w.ID), err)
		}
		w.note("removal of stack %s requested", nameOf(w.ID))
		stack, err = w.settled(ctx)
		if err != nil || stack == nil || stack.StackStatus == cfntypes.StackStatusDeleteComplete {
			w.note("stack removed")
			return err
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

// removeLogs removes log groups that something has created after the stack was
// deleted.
func (w *world) removeLogs(ctx context.Context) error {
	for _, prefix := range []string{nameOf(w.ID), "/aws/lambda/" + nameOf(w.ID)} {
		groups := cloudwatchlogs.NewDescribeLogGroupsPaginator(w.logs, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &prefix})
		for groups.HasMorePages() {
			page, err := groups.NextPage(ctx)
			if err != nil {
				return fmt.Errorf("log groups that begin with %s may be left: %w", prefix, err)
			}
			for _, g := range page.LogGroups {
				if !strings.HasPrefix(*g.LogGroupName, prefix+"-") {
					continue
				}
				if _, err := w.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: g.LogGroupName}); err != nil {
					return fmt.Errorf("the log group %s is left: %w", *g.LogGroupName, err)
				}
				w.note("log group %s removed", *g.LogGroupName)
			}
		}
	}
	return nil
}
