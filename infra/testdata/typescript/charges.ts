// SPDX-License-Identifier: Apache-2.0

import * as cdk from 'aws-cdk-lib';
import { aws_iam as iam, aws_lambda as lambda, aws_sns as sns } from 'aws-cdk-lib';
import { CfnInclude } from 'aws-cdk-lib/cloudformation-include';

const stack = new cdk.Stack(new cdk.App(), 'Charges');

const records = new CfnInclude(stack, 'Once', { templateFile: 'table.json' }).getResource('Records');
const pay = new lambda.Function(stack, 'Pay', {
  runtime: lambda.Runtime.PROVIDED_AL2023, architecture: lambda.Architecture.ARM_64,
  handler: 'bootstrap', code: lambda.Code.fromAsset('bin'), timeout: cdk.Duration.seconds(10),
  environment: { ONCE_TABLE: records.ref, ONCE_METRICS_NAMESPACE: 'Charges' },
});
const record = 'pay#' + '?'.repeat(43), chunks = record + '#*'; // the keys of records, and of pieces of large results
for (const [actions, keys] of [
  [['dynamodb:PutItem', 'dynamodb:GetItem'], [record, '#open']],
  [['dynamodb:BatchWriteItem', 'dynamodb:BatchGetItem'], [chunks]],
]) {
  pay.addToRolePolicy(new iam.PolicyStatement({
    actions, resources: [records.getAtt('Arn').toString()],
    conditions: { 'ForAllValues:StringLike': { 'dynamodb:LeadingKeys': keys }, Null: { 'dynamodb:LeadingKeys': 'false' } },
  }));
}
new CfnInclude(stack, 'OnceAlarms', {
  templateFile: 'alarms.json',
  parameters: {
    Namespace: 'Charges', Operation: 'pay', Table: records.ref, Function: pay.functionName,
    PageTopic: new sns.Topic(stack, 'Pager').topicArn, TicketTopic: new sns.Topic(stack, 'Tickets').topicArn,
  },
});
