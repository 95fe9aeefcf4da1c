# SPDX-License-Identifier: Apache-2.0

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }
}

locals {
  # Lambda developer guide, "Creating and configuring an Amazon SQS event source mapping".
  least_visibility = 6 * var.function.timeout + var.maximum_batching_window_in_seconds
  visibility       = coalesce(var.visibility_timeout_seconds, local.least_visibility)

  # A message that is redriven from the dead-letter queue has a new retention in the queue.
  one_life   = var.message_retention_seconds + local.visibility
  redelivery = var.no_redrive ? local.one_life : 2 * local.one_life + var.dead_letter_retention_seconds
  # The defaults of lambdabatch: 4 days and 12 hours, or 23 days.
  retention = coalesce(var.outcome_retention_seconds, var.no_redrive ? 388800 : 1987200)

  use_key = [for arn in var.kms_key_arn[*] : {
    Effect   = "Allow"
    Action   = ["kms:Decrypt"]
    Resource = arn
  }]

  queues = { (var.name) = aws_sqs_queue.messages, "${var.name}-dead" = aws_sqs_queue.dead }
}

resource "aws_sqs_queue" "messages" {
  name                       = var.name
  visibility_timeout_seconds = local.visibility
  message_retention_seconds  = var.message_retention_seconds
  sqs_managed_sse_enabled    = var.kms_key_arn == null ? true : null
  kms_master_key_id          = var.kms_key_arn
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead.arn
    maxReceiveCount     = var.max_receive_count
  })

  lifecycle {
    precondition {
      condition     = local.visibility >= local.least_visibility
      error_message = "The visibility time-out is ${local.visibility} s and must be at least ${local.least_visibility} s, six times the function's time-out plus the batching window: a message would be delivered again during its first run. Raise visibility_timeout_seconds, or omit it."
    }

    precondition {
      condition     = local.retention >= local.redelivery
      error_message = "Outcomes are stored for ${local.retention} s and a message may be delivered again for ${local.redelivery} s: it would run twice. Raise the retention in the function's code and here, ${var.no_redrive ? "or shorten message_retention_seconds" : "or set no_redrive and NoRedrive in the code if messages are never redriven from the dead-letter queue"}."
    }
  }
}

# Messages that were given up. They wait for an operator.
resource "aws_sqs_queue" "dead" {
  name                      = "${var.name}-dead"
  message_retention_seconds = var.dead_letter_retention_seconds
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "tls" {
  for_each = local.queues

  queue_url = each.value.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Deny"
      Action    = "sqs:*"
      Principal = { AWS = "*" }
      Resource  = each.value.arn
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}

resource "aws_lambda_event_source_mapping" "messages" {
  event_source_arn                   = aws_sqs_queue.messages.arn
  function_name                      = var.function.arn
  batch_size                         = var.batch_size
  maximum_batching_window_in_seconds = var.maximum_batching_window_in_seconds
  tags                               = var.tags

  # Only the messages that the function reports as failed are delivered again.
  function_response_types = ["ReportBatchItemFailures"]

  depends_on = [aws_iam_role_policy.receive]
}

# To hide a message that is refused, lambdabatch changes its visibility time-out.
resource "aws_iam_role_policy" "receive" {
  name = "receive-${var.name}"
  role = var.role
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([{
      Effect   = "Allow"
      Action   = ["sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
      Resource = aws_sqs_queue.messages.arn
    }], local.use_key)
  })
}
