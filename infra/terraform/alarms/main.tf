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
  # The CDK constructs read the same file: the alarms by what they watch, and the rows of the dashboard.
  catalogue = jsondecode(file("${path.module}/catalogue.json"))

  topics = {
    page   = var.page_topic_arn
    ticket = var.ticket_topic_arn
    look   = var.look_topic_arn
  }

  reconciled = var.reconciler != null
  interval   = 60 * try(var.reconciler.every_minutes, 1) # of the reconciler
  scans      = 60 * try(var.reconciler.scan_minutes, 0)  # between two scans, at most; 0 without scans

  thresholds = {
    StoreErrors   = var.store_error_rate
    Misuse        = var.misuse_rate
    OldestUnknown = var.oldest_unknown_seconds
  }

  # What the alarms watch. A set for all operations has the counts without a dimension. The keys of the alarms end with `key`,
  # which is known before the queues exist; the descriptions begin with `about`, and contain `named`.
  subjects = concat(
    [for operation in var.operations : {
      of  = "requests", namespace = var.namespace, dimensions = { operation = operation }
      key = "-${operation}", about = "${operation}: ", label = operation
    }],
    [for all in [0] : { of = "requests", namespace = var.namespace, dimensions = null } if length(var.operations) == 0],
    [for function in var.functions : {
      of  = "function", namespace = "AWS/Lambda", dimensions = { FunctionName = function.function_name }
      key = "-${function.function_name}", named = function.function_name, timeout = function.timeout
    }],
    [{ of = "table", namespace = "AWS/DynamoDB", dimensions = { TableName = var.table.name } }],
    [{ of = "index", namespace = "AWS/DynamoDB", dimensions = { TableName = var.table.name, GlobalSecondaryIndexName = "recovery" } }],
    [for reconciler in var.reconciler[*] : { of = "gauges", namespace = var.namespace, dimensions = { operation = "all" } }],
    [for reconciler in var.reconciler[*] : { of = "reconciler", namespace = "AWS/Lambda", dimensions = { FunctionName = reconciler.function_name } }],
    [for i, queue in concat(var.reconciler == null ? [] : [var.reconciler.exhausted_queue.name, var.reconciler.undelivered_queue.name], var.dead_letter_queues) : {
      of = "queue", namespace = "AWS/SQS", dimensions = { QueueName = queue }, key = i, named = queue
    }],
  )

  # Lambda reports an error after the invocation has ended, with the time at which it began. So an alarm must look further
  # back than an invocation can last, and five minutes more for the report to arrive.
  alarms = merge([for subject in local.subjects : { for alarm in local.catalogue.alarms : "${alarm.name}${try(subject.key, "")}" => merge(
    # An event that never occurred has no metric.
    { expression = null, metric = null, metrics = {}, label = null, below = false, missing = "notBreaching", period = local.interval }, alarm, subject,
    {
      description = "${try(subject.about, "")}${replace(alarm.description, "NAME", try(subject.named, ""))}"
      threshold   = coalesce(try(local.thresholds[alarm.name], null), max(alarm.threshold, try(alarm.intervals, 0) * local.interval, try(alarm.scans, 0) * local.scans))
    },
    ) if alarm.of == subject.of && try(alarm.reconciler, local.reconciled) == local.reconciled
    && (!can(alarm.scans) || local.scans > 0) && try(subject.timeout + 300 < alarm.period * alarm.periods, true)
  }]...)
  expressions = { for id, alarm in local.alarms : id => alarm if alarm.expression != null }
  metrics     = { for id, alarm in local.alarms : id => alarm if alarm.expression == null }
}

resource "aws_cloudwatch_metric_alarm" "expressions" {
  for_each = local.expressions

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.description} ${var.runbook_url}#${lower(each.value.name)}"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  evaluation_periods  = each.value.periods
  datapoints_to_alarm = each.value.breaching
  treat_missing_data  = each.value.missing
  alarm_actions       = local.topics[each.value.notifies][*]
  ok_actions          = local.topics[each.value.notifies][*]
  tags                = var.tags

  metric_query {
    id          = "expr_1"
    return_data = true
    expression  = each.value.expression
  }

  dynamic "metric_query" {
    for_each = each.value.metrics

    content {
      id    = metric_query.key
      label = each.value.label

      metric {
        namespace   = each.value.namespace
        metric_name = metric_query.value
        dimensions  = each.value.dimensions
        stat        = each.value.statistic
        period      = each.value.period
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "metrics" {
  for_each = local.metrics

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.description} ${var.runbook_url}#${lower(each.value.name)}"
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = each.value.period
  comparison_operator = each.value.below ? "LessThanThreshold" : "GreaterThanThreshold"
  threshold           = each.value.threshold
  evaluation_periods  = each.value.periods
  datapoints_to_alarm = each.value.breaching
  treat_missing_data  = each.value.missing
  alarm_actions       = local.topics[each.value.notifies][*]
  ok_actions          = local.topics[each.value.notifies][*]
  tags                = var.tags
}

# A warning, as of the CDK construct.
check "notifications" {
  assert {
    condition     = var.page_topic_arn != null && var.ticket_topic_arn != null
    error_message = "Without page_topic_arn and ticket_topic_arn no one is notified of conditions that need an operator."
  }
}

check "metrics" {
  assert {
    condition     = length(var.functions) > 0
    error_message = "Without functions there are no alarms on functions that crash or time out."
  }
}

check "log_level" {
  assert {
    condition     = alltrue([for f in var.functions : alltrue([for c in f.logging_config : !contains(["WARN", "ERROR", "FATAL"], coalesce(c.application_log_level, "INFO"))])])
    error_message = "A function has an application log level above INFO: package telemetry writes each line of the metrics and of the audit with that level, so that Lambda does not drop it, and what looks for errors in the log finds these lines. Set application_log_level to INFO."
  }
}
