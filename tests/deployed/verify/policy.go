// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// statement is a statement of a policy.
type statement struct {
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string]string `json:",omitempty"`
}

// leastPolicy returns what a principal needs for a run. CloudFormation uses the same
// permissions, because it gets no other role.
func leastPolicy(s settings) []statement {
	region := s.region
	if region == "" {
		region = "*"
	}
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":" + region + ":" + s.account + ":" + resource
	}
	name := nameOf("*")
	all := []statement{
		// Of the identity, of what has no name yet, and of lists.
		{Action: []string{
			"sts:GetCallerIdentity", "iam:ListAccountAliases", "cloudwatch:GetMetricData", "logs:DescribeLogGroups",
			"lambda:CreateEventSourceMapping", "lambda:GetEventSourceMapping", "lambda:ListEventSourceMappings",
		}, Resource: []string{"*"}},
		{Action: []string{"lambda:UpdateEventSourceMapping", "lambda:DeleteEventSourceMapping", "lambda:TagResource", "lambda:UntagResource", "lambda:ListTags"},
			Resource: []string{arn("lambda", "event-source-mapping:*")}},
		{Action: []string{
			"cloudformation:CreateStack", "cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents", "cloudformation:DeleteStack", "cloudformation:TagResource",
		}, Resource: []string{arn("cloudformation", "stack/"+name+"/*")}},
		{Action: []string{
			"s3:CreateBucket", "s3:ListBucket", "s3:PutBucketTagging", "s3:PutBucketPublicAccessBlock", "s3:PutLifecycleConfiguration",
			"s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:DeleteBucket",
		}, Resource: []string{"arn:aws:s3:::" + name, "arn:aws:s3:::" + name + "/*"}},
		{Action: []string{
			"dynamodb:CreateTable", "dynamodb:DescribeTable", "dynamodb:UpdateTable", "dynamodb:DeleteTable", "dynamodb:TagResource", "dynamodb:UntagResource",
			"dynamodb:ListTagsOfResource", "dynamodb:DescribeTimeToLive", "dynamodb:UpdateTimeToLive", "dynamodb:DescribeContinuousBackups",
			"dynamodb:UpdateContinuousBackups", "dynamodb:DescribeContributorInsights", "dynamodb:DescribeKinesisStreamingDestination",
			"dynamodb:GetResourcePolicy", "dynamodb:DescribeTableReplicaAutoScaling", "dynamodb:CreateTableReplica", "dynamodb:DeleteTableReplica",
			"dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:Query", "dynamodb:Scan", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem",
		}, Resource: []string{arn("dynamodb", "table/"+name)}},
		{Action: []string{
			"lambda:CreateFunction", "lambda:GetFunction", "lambda:GetFunctionConfiguration", "lambda:GetFunctionCodeSigningConfig",
			"lambda:GetRuntimeManagementConfig", "lambda:GetFunctionRecursionConfig",
			"lambda:DeleteFunction", "lambda:AddPermission", "lambda:RemovePermission", "lambda:GetPolicy", "lambda:InvokeFunction",
			"lambda:PutFunctionEventInvokeConfig", "lambda:GetFunctionEventInvokeConfig", "lambda:DeleteFunctionEventInvokeConfig",
			"lambda:TagResource", "lambda:UntagResource", "lambda:ListTags", "lambda:PublishLayerVersion", "lambda:GetLayerVersion", "lambda:DeleteLayerVersion",
		}, Resource: []string{arn("lambda", "function:"+name), arn("lambda", "layer:"+name), arn("lambda", "layer:"+name+":*")}},
		{Action: []string{
			"sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", "sqs:DeleteQueue", "sqs:TagQueue", "sqs:ListQueueTags",
			"sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage",
		}, Resource: []string{arn("sqs", name)}},
		{Action: []string{
			"sns:CreateTopic", "sns:GetTopicAttributes", "sns:SetTopicAttributes", "sns:DeleteTopic", "sns:TagResource", "sns:ListTagsForResource",
			"sns:Subscribe", "sns:Unsubscribe", "sns:GetSubscriptionAttributes", "sns:ListSubscriptionsByTopic", "sns:GetDataProtectionPolicy",
		}, Resource: []string{arn("sns", name)}},
		{Action: []string{"events:PutRule", "events:DescribeRule", "events:DeleteRule", "events:PutTargets", "events:RemoveTargets", "events:TagResource"},
			Resource: []string{arn("events", "rule/"+name)}},
		{Action: []string{"cloudwatch:PutMetricAlarm", "cloudwatch:DescribeAlarms", "cloudwatch:DeleteAlarms", "cloudwatch:TagResource", "cloudwatch:ListTagsForResource"},
			Resource: []string{arn("cloudwatch", "alarm:"+name)}},
		{Action: []string{
			"logs:CreateLogGroup", "logs:PutRetentionPolicy", "logs:DeleteLogGroup", "logs:TagResource", "logs:ListTagsForResource",
		}, Resource: []string{arn("logs", "log-group:"+name), arn("logs", "log-group:/aws/lambda/"+name)}},
	}
	roles := statement{Action: []string{
		"iam:CreateRole", "iam:GetRole", "iam:DeleteRole", "iam:TagRole", "iam:PutRolePolicy", "iam:GetRolePolicy", "iam:DeleteRolePolicy",
		"iam:ListRolePolicies", "iam:ListAttachedRolePolicies", "iam:PassRole",
	}, Resource: []string{"arn:aws:iam::" + s.account + ":role/" + s.rolePrefix + name}}
	if s.boundary != "" {
		i := slices.Index(roles.Action, "iam:CreateRole")
		roles.Action = slices.Delete(roles.Action, i, i+1)
		all = append(all, statement{
			Action: []string{"iam:CreateRole"}, Resource: roles.Resource,
			Condition: map[string]map[string]string{"StringEquals": {"iam:PermissionsBoundary": s.boundary}},
		})
	}
	all = append(all, roles)
	if s.kms {
		all = append(all, statement{Action: []string{
			"kms:CreateKey", "kms:TagResource", "kms:DescribeKey", "kms:GetKeyPolicy", "kms:PutKeyPolicy", "kms:GetKeyRotationStatus",
			"kms:EnableKeyRotation", "kms:ListResourceTags", "kms:ScheduleKeyDeletion", "kms:CreateGrant", "kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey",
		}, Resource: []string{"*"}})
	}
	if s.regions != "" {
		tables := statement{Action: []string{
			"dynamodb:CreateTable", "dynamodb:DescribeTable", "dynamodb:UpdateTable", "dynamodb:DeleteTable", "dynamodb:TagResource",
			"dynamodb:CreateTableReplica", "dynamodb:DeleteTableReplica", "dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem",
			"dynamodb:Query", "dynamodb:Scan", "dynamodb:BatchWriteItem",
		}}
		for _, region := range strings.Split(s.regions, ",") {
			tables.Resource = append(tables.Resource, "arn:aws:dynamodb:"+region+":"+s.account+":table/"+name)
		}
		all = append(all, tables, statement{
			Action:   []string{"iam:CreateServiceLinkedRole"},
			Resource: []string{"arn:aws:iam::" + s.account + ":role/aws-service-role/replication.dynamodb.amazonaws.com/*"},
		})
	}
	for i := range all {
		all[i].Effect = "Allow"
	}
	return all
}

func printPolicy(out io.Writer, s settings) error {
	text, err := json.MarshalIndent(map[string]any{"Version": "2012-10-17", "Statement": leastPolicy(s)}, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
