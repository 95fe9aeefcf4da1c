# SPDX-License-Identifier: Apache-2.0

# The example with Terraform or OpenTofu: charges from a function URL, orders from a queue, and the reconciler.
# A test compares it with the CDK stack. From the root of a clone:
#
#   make bundles
#   cd examples/charge-lambda/stack/terraform
#   tofu init && tofu apply -var provider_url=https://payments.example.com/v1

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }
}

variable "provider_url" {
  description = "The payment provider's address."
  type        = string

  validation {
    condition     = can(regex("^https?://.+", var.provider_url))
    error_message = "Set the address of the payment provider, such as https://payments.example.com/v1."
  }
}

data "aws_caller_identity" "current" {}

locals {
  bundles = "${path.module}/../../../../.cache/bundles"

  # Each function, with its own variables and permissions.
  functions = {
    charges = {
      program = "charge", timeout = 10
      env     = { ONCE_METRICS_NAMESPACE = "Charges" }
    }
    orders = {
      program = "orders", timeout = 30
      env     = { ONCE_METRICS_NAMESPACE = "OrderQueue", SHOP_TABLE = aws_dynamodb_table.shop.name }
    }
    reconciler = {
      program = "reconciler", timeout = 60
      env     = merge({ ONCE_METRICS_NAMESPACE = "Charges" }, module.reconciler.environment)
    }
  }
}

# --- what once adds -------------------------------------------------------------

module "records" {
  source = "../../../../infra/terraform/table"

  name = "charge-records"
}

module "environment" {
  source   = "../../../../infra/terraform/environment"
  for_each = local.functions

  of = [module.records.environment, { PROVIDER_URL = var.provider_url }, each.value.env]
}

module "charges_access" {
  source = "../../../../infra/terraform/access"

  table = module.records
  role  = aws_iam_role.function["charges"].name
  may   = "handler"

  operations = ["POST /charges"]
}

module "orders_access" {
  source = "../../../../infra/terraform/access"

  table = module.records
  role  = aws_iam_role.function["orders"].name
  may   = "handler"

  operations = ["take-order"]
}

module "orders" {
  source = "../../../../infra/terraform/queue"

  name              = "orders"
  function          = aws_lambda_function.function["orders"]
  role              = aws_iam_role.function["orders"].name
  max_receive_count = 3
}

module "reconciler" {
  source = "../../../../infra/terraform/reconciler"

  name     = "charge-reconciler"
  function = aws_lambda_function.function["reconciler"]
  role     = aws_iam_role.function["reconciler"].name
  table    = module.records
}

module "charge_alarms" {
  source = "../../../../infra/terraform/alarms"

  name             = "charges"
  namespace        = "Charges"
  functions        = [aws_lambda_function.function["charges"]]
  table            = module.records
  reconciler       = module.reconciler
  page_topic_arn   = aws_sns_topic.alarms["pager"].arn
  ticket_topic_arn = aws_sns_topic.alarms["tickets"].arn

  dashboard_name       = "charges"
  dashboard_operations = ["POST /charges"]
}

module "order_alarms" { # without a reconciler: the next delivery continues an order
  source = "../../../../infra/terraform/alarms"

  name               = "orders"
  namespace          = "OrderQueue"
  functions          = [aws_lambda_function.function["orders"]]
  table              = module.records
  dead_letter_queues = [module.orders.dead_letter_queue.name]
  page_topic_arn     = aws_sns_topic.alarms["pager"].arn
  ticket_topic_arn   = aws_sns_topic.alarms["tickets"].arn

  dashboard_name       = "orders"
  dashboard_operations = ["take-order"]
}

# --- the service ----------------------------------------------------------------

resource "aws_lambda_function" "function" {
  for_each = local.functions

  function_name    = each.key
  role             = aws_iam_role.function[each.key].arn
  runtime          = "provided.al2023"
  architectures    = ["arm64"]
  handler          = "bootstrap"
  filename         = "${local.bundles}/${each.value.program}-arm64.zip"
  source_code_hash = fileexists("${local.bundles}/${each.value.program}-arm64.zip") ? filebase64sha256("${local.bundles}/${each.value.program}-arm64.zip") : null
  memory_size      = 256
  timeout          = each.value.timeout

  environment {
    variables = module.environment[each.key].variables
  }

  # The functions log with lambdacontext.NewLogger, which follows this setting.
  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.function[each.key].name
  }

  tracing_config {
    mode = "Active"
  }
}

resource "aws_cloudwatch_log_group" "function" {
  for_each = local.functions

  name              = "/aws/lambda/${each.key}"
  retention_in_days = 30
}

resource "aws_iam_role" "function" {
  for_each = local.functions

  name = each.key
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "observed" {
  for_each = local.functions

  name = "observed"
  role = aws_iam_role.function[each.key].name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.function[each.key].arn}:*"
      },
      {
        Effect   = "Allow"
        Action   = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"]
        Resource = "*" # a trace has no ARN
      },
    ]
  })
}

resource "aws_lambda_function_url" "charges" {
  function_name      = aws_lambda_function.function["charges"].function_name
  authorization_type = "AWS_IAM"
}

resource "aws_dynamodb_table" "shop" {
  name                        = "charge-shop"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  point_in_time_recovery {
    enabled = true
  }
}

resource "aws_iam_role_policy" "shop" {
  name = "shop"
  role = aws_iam_role.function["orders"].name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["dynamodb:PutItem", "dynamodb:UpdateItem"]
      Resource = aws_dynamodb_table.shop.arn
    }]
  })
}

# A topic with a policy of its own has lost the default policy, which lets CloudWatch publish.
resource "aws_sns_topic" "alarms" {
  for_each = toset(["pager", "tickets"])

  name = each.key
}

resource "aws_sns_topic_policy" "alarms" {
  for_each = aws_sns_topic.alarms

  arn = each.value.arn
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Deny"
        Action    = "sns:Publish"
        Principal = "*"
        Resource  = each.value.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Effect    = "Allow"
        Action    = "sns:Publish"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Resource  = each.value.arn
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
      },
    ]
  })
}

# --- addresses ------------------------------------------------------------------

output "records_table" {
  description = "The table's name, for `once --table`."
  value       = module.records.name
}

output "function_url" {
  description = "Where charges are requested."
  value       = aws_lambda_function_url.charges.function_url
}

output "order_queue_url" {
  description = "Where orders are sent."
  value       = module.orders.url
}
