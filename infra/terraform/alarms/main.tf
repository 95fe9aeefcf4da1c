# SPDX-License-Identifier: Apache-2.0

locals {
  minute = 60
  hour   = 3600
  runs   = 3 # of the reconciler

  topics = {
    page   = var.page_topic_arn
    ticket = var.ticket_topic_arn
    look   = var.look_topic_arn
  }

  # The alarms of each operation. They count events of these kinds, for each 100 requests if per_request is true, and ring
  # if there are too many in `breaching` of `periods` periods.
  kinds_of_alarms = {
    StoreErrors = {
      severity    = "page", kinds = ["store_error"], per_request = true, threshold = var.store_error_rate
      period      = local.minute, periods = 5, breaching = 3
      description = "Too many calls to the table fail. Requests are refused, not run unguarded."
    }
    ContradictedOften = {
      severity    = "page", kinds = ["contradicted"], per_request = true, threshold = 0.1
      period      = local.hour, periods = 1, breaching = 1
      description = "Evidence contradicts too many records: effects may happen twice, or a resolver is wrong."
    }
    Contradicted = {
      severity    = "ticket", kinds = ["contradicted"], per_request = false, threshold = 0
      period      = local.hour, periods = 1, breaching = 1
      description = "Evidence contradicts a record: an effect may have happened twice, or a resolver is wrong."
    }
    NotStored = {
      severity    = "ticket", kinds = ["completion_failed"], per_request = true, threshold = 0.1
      period      = local.hour, periods = 1, breaching = 1
      description = "Handlers did their work, and too many outcomes or results could not be stored."
    }
    Late = {
      severity    = "ticket", kinds = ["late_completion", "lease_lost"], per_request = true, threshold = 1
      period      = local.hour, periods = 1, breaching = 1
      description = "Too many handlers outlived their lease."
    }
    Unknown = {
      severity = "ticket", kinds = ["marked_unknown"], per_request = var.reconciler != null, threshold = var.reconciler == null ? 0 : 1
      period   = local.hour, periods = 1, breaching = 1
      description = (var.reconciler == null
        ? "A run ended with an unknown outcome, and no reconciler settles it. Its key does not run again."
        : "Too many runs end with an unknown outcome. Their keys do not run again before the reconciler has settled them."
      )
    }
    Exhausted = {
      severity    = "ticket", kinds = ["reconcile_exhausted"], per_request = false, threshold = 0
      period      = local.hour, periods = 1, breaching = 1
      description = "Reconciliation has given up a record. Its key does not run again before an operator has settled it."
    }
    Misuse = {
      severity    = "look", kinds = ["mismatch"], per_request = true, threshold = var.misuse_rate
      period      = local.hour, periods = 1, breaching = 1
      description = "Too many requests use the key of another request."
    }
  }

  of_operations = { for pair in setproduct(var.operations, keys(local.kinds_of_alarms)) : "${pair[1]}-${pair[0]}" => merge(
    local.kinds_of_alarms[pair[1]],
    {
      name        = pair[1]
      description = "${pair[0]}: ${local.kinds_of_alarms[pair[1]].description}"
      part        = local.kinds_of_alarms[pair[1]].kinds
      whole       = local.kinds_of_alarms[pair[1]].per_request ? "request_ended" : null
      metrics = { for kind in concat(local.kinds_of_alarms[pair[1]].kinds, local.kinds_of_alarms[pair[1]].per_request ? ["request_ended"] : []) : kind => {
        namespace = var.namespace, name = "once.${kind}", dimensions = { operation = pair[0] }, label = pair[0]
      } }
    }
  ) if pair[1] != "Exhausted" || var.reconciler != null }

  of_the_table = { for name, index in { Throttles = {}, IndexThrottles = { GlobalSecondaryIndexName = "recovery" } } : name => {
    name        = name, severity = "ticket", threshold = 1, period = local.hour, periods = 1, breaching = 1
    description = "DynamoDB throttles too many writes of records."
    part        = ["throttles"]
    whole       = "units"
    metrics = { for id, metric in { throttles = "WriteThrottleEvents", units = "ConsumedWriteCapacityUnits" } : id => {
      namespace = "AWS/DynamoDB", name = metric, dimensions = merge({ TableName = var.table.name }, index), label = null
    } }
  } }

  sum = { for id, alarm in merge(local.of_operations, local.of_the_table) : id =>
    length(alarm.part) == 1 ? "FILL(${alarm.part[0]}, 0)" : "(${join(" + ", [for id in alarm.part : "FILL(${id}, 0)"])})"
  }
}

# Without requests, each event counts as 100 %: the reconciler reports events too, when no request comes.
resource "aws_cloudwatch_metric_alarm" "expressions" {
  for_each = merge(local.of_operations, local.of_the_table)

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.description} ${var.runbook_url}#${lower(each.value.name)}"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  evaluation_periods  = each.value.periods
  datapoints_to_alarm = each.value.breaching
  treat_missing_data  = "notBreaching" # an event that never occurred has no metric
  alarm_actions       = local.topics[each.value.severity][*]
  ok_actions          = local.topics[each.value.severity][*]
  tags                = var.tags

  metric_query {
    id          = "expr_1"
    return_data = true
    expression = (each.value.whole == null
      ? local.sum[each.key]
      : format("IF(%[2]s > 0, 100 * %[1]s / %[2]s, 100 * %[1]s)", local.sum[each.key], "FILL(${each.value.whole}, 0)")
    )
  }

  dynamic "metric_query" {
    for_each = each.value.metrics

    content {
      id    = metric_query.key
      label = metric_query.value.label

      metric {
        namespace   = metric_query.value.namespace
        metric_name = metric_query.value.name
        dimensions  = metric_query.value.dimensions
        stat        = "Sum"
        period      = each.value.period
      }
    }
  }
}

locals {
  every          = var.reconciler == null ? local.minute : 60 * var.reconciler.every_minutes
  oldest_unknown = coalesce(var.oldest_unknown_seconds, max(15 * local.minute, local.runs * local.every))

  # A gauge or an invocation that is missing is as bad as a bad one: nothing settles unknown outcomes.
  of_the_reconciler = { for name, alarm in {
    OldestUnknown = {
      namespace   = var.namespace, metric = "once.unknown.oldest_age", statistic = "Maximum", dimensions = { operation = "all" }
      comparison  = "GreaterThanThreshold", threshold = local.oldest_unknown, missing = "breaching"
      description = "An outcome has been unknown for too long, or the reconciler does not report ages."
    }
    ReconcilerErrors = {
      namespace   = "AWS/Lambda", metric = "Errors", statistic = "Sum", dimensions = { FunctionName = try(var.reconciler.function_name, "") }
      comparison  = "GreaterThanThreshold", threshold = 0, missing = "notBreaching"
      description = "The reconciler fails in every run: it cannot list records, or cannot settle any of them."
    }
    ReconcilerThrottled = {
      namespace   = "AWS/Lambda", metric = "Throttles", statistic = "Sum", dimensions = { FunctionName = try(var.reconciler.function_name, "") }
      comparison  = "GreaterThanThreshold", threshold = 0, missing = "notBreaching"
      description = "Lambda throttles the reconciler."
    }
    ReconcilerSilent = {
      namespace   = "AWS/Lambda", metric = "Invocations", statistic = "Sum", dimensions = { FunctionName = try(var.reconciler.function_name, "") }
      comparison  = "LessThanThreshold", threshold = 1, missing = "breaching"
      description = "The reconciler does not run. After the first deployment this rings until its first run."
    }
  } : name => merge(alarm, { severity = "page", period = local.every, periods = local.runs, runbook = name }) if var.reconciler != null }

  # The keys are known before the queues exist.
  dead_letters = concat(var.reconciler == null ? [] : [var.reconciler.exhausted_queue.name, var.reconciler.undelivered_queue.name], var.dead_letter_queues)
  of_queues = { for i, queue in local.dead_letters : "DeadLetters${i}" => {
    namespace   = "AWS/SQS", metric = "ApproximateNumberOfMessagesVisible", statistic = "Maximum", dimensions = { QueueName = queue }
    comparison  = "GreaterThanThreshold", threshold = 0, missing = "notBreaching"
    description = "Messages were given up and wait for an operator in ${queue}."
    severity    = "ticket", period = local.minute, periods = 1, runbook = "DeadLetters"
  } }
}

resource "aws_cloudwatch_metric_alarm" "metrics" {
  for_each = merge(local.of_the_reconciler, local.of_queues)

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.description} ${var.runbook_url}#${lower(each.value.runbook)}"
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = each.value.period
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  evaluation_periods  = each.value.periods
  datapoints_to_alarm = each.value.periods
  treat_missing_data  = each.value.missing
  alarm_actions       = local.topics[each.value.severity][*]
  ok_actions          = local.topics[each.value.severity][*]
  tags                = var.tags
}

# A warning, as of the CDK construct.
check "notifications" {
  assert {
    condition     = var.page_topic_arn != null && var.ticket_topic_arn != null
    error_message = "Without page_topic_arn and ticket_topic_arn no one is notified of conditions that need an operator."
  }
}
