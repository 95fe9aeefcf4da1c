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
  queues = { exhausted = aws_sqs_queue.exhausted, undelivered = aws_sqs_queue.undelivered }

  # The default of dynamostore is a day.
  scan_minutes = var.scan_every_minutes == null ? max(1440, var.every_minutes) : var.scan_every_minutes
  scan = local.scan_minutes == 0 ? { "ONCE_SCAN_EVERY${local.suffix}" = "off" } : merge(
    { for n in [local.scan_minutes] : "ONCE_SCAN_EVERY${local.suffix}" => "${n}m" if n != 1440 },
    { for n in [var.scan_segments] : "ONCE_SCAN_SEGMENTS${local.suffix}" => tostring(n) if n > 1 },
  )
  suffix = var.table.store == null ? "" : "_${upper(replace(var.table.store, "-", "_"))}" # as dynamostore.Open reads them

  use_key = [for arn in var.kms_key_arn[*] : {
    Effect   = "Allow"
    Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
    Resource = arn
  }]

  # arn:PARTITION:lambda:REGION:ACCOUNT:function:NAME:ALIAS
  qualifier = try(split(":", var.function.arn)[7], null)
}

# A message for each record that reconciliation has given up.
resource "aws_sqs_queue" "exhausted" {
  name                      = "${var.name}-exhausted"
  message_retention_seconds = 1209600 # the longest that SQS allows
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn
  tags                      = var.tags
}

# The scheduled events that did not reach the function.
resource "aws_sqs_queue" "undelivered" {
  name                      = "${var.name}-undelivered"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "exhausted" {
  queue_url = aws_sqs_queue.exhausted.url
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [local.tls_only["exhausted"]]
  })
}

resource "aws_sqs_queue_policy" "undelivered" {
  queue_url = aws_sqs_queue.undelivered.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [local.tls_only["undelivered"], {
      Effect    = "Allow"
      Action    = "sqs:SendMessage"
      Principal = { Service = "events.amazonaws.com" }
      Resource  = aws_sqs_queue.undelivered.arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.schedule.arn } }
    }]
  })
}

locals {
  tls_only = { for name, queue in local.queues : name => {
    Effect    = "Deny"
    Action    = "sqs:*"
    Principal = { AWS = "*" }
    Resource  = queue.arn
    Condition = { Bool = { "aws:SecureTransport" = "false" } }
  } }
}

module "access" {
  source = "../access"

  table = var.table
  role  = var.role
  may   = "reconciler"
  scans = local.scan_minutes > 0 || var.table.consistency == "strong" # refused below
}

resource "aws_iam_role_policy" "send" {
  name = "send-${var.name}-exhausted"
  role = var.role
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([{
      Effect   = "Allow"
      Action   = ["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]
      Resource = aws_sqs_queue.exhausted.arn
    }], local.use_key)
  })
}

resource "aws_cloudwatch_event_rule" "schedule" {
  name                = var.name
  description         = "Settles unknown outcomes"
  schedule_expression = var.every_minutes == 1 ? "rate(1 minute)" : "rate(${var.every_minutes} minutes)"
  tags                = var.tags

  lifecycle {
    precondition {
      condition     = local.scan_minutes == 0 || local.scan_minutes >= var.every_minutes
      error_message = "The interval between two scans is ${local.scan_minutes} min, which is shorter than the interval between two runs (${var.every_minutes} min): set scan_every_minutes to that at least, or omit it."
    }

    precondition {
      condition     = try(split(":", var.function.arn)[3] == split(":", var.table.arn)[3], true)
      error_message = "The function and the table are in two regions, and DynamoDB finds a table only in its own: deploy both to one region, or use a replica of the table."
    }

    precondition {
      condition     = local.scan_minutes > 0 || var.table.consistency != "strong"
      error_message = "scan_every_minutes is 0, and in a table with strong consistency only the scan deletes expired items: remove it, or set another interval."
    }

    precondition {
      condition     = local.scan_minutes > 0 || var.scan_segments == 1
      error_message = "scan_every_minutes is 0, so there are no scans, and scan_segments is set: remove one of them."
    }
  }
}

resource "aws_cloudwatch_event_target" "function" {
  rule = aws_cloudwatch_event_rule.schedule.name
  arn  = var.function.arn

  dead_letter_config {
    arn = aws_sqs_queue.undelivered.arn
  }

  # The next run does the same work.
  retry_policy {
    maximum_retry_attempts = 0
  }

  depends_on = [aws_lambda_permission.schedule]
}

resource "aws_lambda_permission" "schedule" {
  action        = "lambda:InvokeFunction"
  function_name = var.function.function_name
  qualifier     = local.qualifier
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.schedule.arn
}

# A run that fails or waits too long is not repeated: the next run does the same work, and old runs would pile up.
resource "aws_lambda_function_event_invoke_config" "function" {
  function_name                = var.function.function_name
  qualifier                    = local.qualifier
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60
}

# A warning, as of the module alarms for the other functions.
check "log_level" {
  assert {
    condition     = alltrue([for c in var.function.logging_config : !contains(["WARN", "ERROR", "FATAL"], coalesce(c.application_log_level, "INFO"))])
    error_message = "The function's application log level is above INFO: set it to INFO, or the lines of the metrics have the level of errors."
  }
}
