# SPDX-License-Identifier: Apache-2.0

locals {
  minute = 60
  slow   = 600 # for services with few requests
  hour   = 3600
  runs   = 3 # of the reconciler

  topics = {
    page   = var.page_topic_arn
    ticket = var.ticket_topic_arn
    look   = var.look_topic_arn
  }

  # The alarms on requests, of all operations or of each. They count events of these kinds, for each 100 requests if per_request is true, and ring
  # if there are too many in `breaching` of `periods` periods.
  kinds_of_alarms = {
    StoreErrors = {
      severity    = "page", kinds = ["store_error"], per_request = true, threshold = var.store_error_rate
      period      = local.minute, periods = 5, breaching = 3
      description = "Too many calls to the table fail. Requests are refused, not run unguarded."
    }
    StoreErrorsLong = {
      severity    = "page", kinds = ["store_error"], per_request = true, threshold = 20
      period      = local.slow, periods = 12, breaching = 3
      description = "Calls to the table fail again and again. Requests are refused, not run unguarded."
    }
    NoOutcome = {
      severity    = "page", kinds = ["no_outcome"], per_request = true, threshold = 90
      period      = local.slow, periods = 12, breaching = 3
      description = "Nearly no request gets an outcome: no handler runs, and nothing is replayed."
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
    ReplayFailed = {
      severity    = "ticket", kinds = ["replay_failed"], per_request = false, threshold = 0
      period      = local.hour, periods = 1, breaching = 1
      description = "A stored outcome could not be returned: the code cannot read what it stored."
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

  # Without operations there is one set for all: the counts without a dimension.
  sets = length(var.operations) > 0 ? var.operations : [""]
  of_operations = { for pair in setproduct(local.sets, keys(local.kinds_of_alarms)) : pair[0] == "" ? pair[1] : "${pair[1]}-${pair[0]}" => merge(
    local.kinds_of_alarms[pair[1]],
    {
      name        = pair[1]
      description = "${pair[0] == "" ? "" : "${pair[0]}: "}${local.kinds_of_alarms[pair[1]].description}"
      expression = (local.kinds_of_alarms[pair[1]].per_request
        ? format(local.share, local.sums[pair[1]], "FILL(request_ended, 0)")
        : local.sums[pair[1]]
      )
      metrics = { for kind in concat(local.kinds_of_alarms[pair[1]].kinds, local.kinds_of_alarms[pair[1]].per_request ? ["request_ended"] : []) : kind => {
        namespace = var.namespace, name = "once.${kind}", label = pair[0] == "" ? null : pair[0], dimensions = pair[0] == "" ? null : { operation = pair[0] }
      } }
    }
  ) if pair[1] != "Exhausted" || var.reconciler != null }

  sums = { for name, alarm in local.kinds_of_alarms : name =>
    length(alarm.kinds) == 1 ? "FILL(${alarm.kinds[0]}, 0)" : "(${join(" + ", [for id in alarm.kinds : "FILL(${id}, 0)"])})"
  }
  # Without requests, each event counts as 100 %: the reconciler reports events too, when no request comes.
  share = "IF(%[2]s > 0, 100 * %[1]s / %[2]s, 100 * %[1]s)"

  # Lambda reports an error after the invocation has ended, with the time at which it began. So an alarm must look further
  # back than an invocation can last, and five minutes more for the report to arrive.
  kinds_of_function_alarms = {
    FunctionFails     = { least = 2, period = 300, periods = 3, breaching = 2 } # one message with a few deliveries is no page
    FunctionFailsLong = { least = 0, period = local.slow, periods = 12, breaching = 3 }
  }
  of_functions = { for pair in setproduct(range(length(var.functions)), keys(local.kinds_of_function_alarms)) :
    "${pair[1]}-${var.functions[pair[0]].function_name}" => merge(local.kinds_of_function_alarms[pair[1]], {
      name        = pair[1], severity = "page", threshold = 50
      description = "Most invocations of the function ${var.functions[pair[0]].function_name} fail: they crash, time out, or return an error."
      expression = format(
        local.kinds_of_function_alarms[pair[1]].least == 0 ? "%s" : "IF(FILL(errors, 0) > ${local.kinds_of_function_alarms[pair[1]].least}, %s, 0)",
        format(local.share, "FILL(errors, 0)", "FILL(invocations, 0)"),
      )
      metrics = { for id, metric in { errors = "Errors", invocations = "Invocations" } : id => {
        namespace = "AWS/Lambda", name = metric, dimensions = { FunctionName = var.functions[pair[0]].function_name }, label = null
      } }
    })
    if pair[1] == "FunctionFailsLong" || var.functions[pair[0]].timeout + 300 < 900
  }

  of_the_table = { for name, index in { Throttles = {}, IndexThrottles = { GlobalSecondaryIndexName = "recovery" } } : name => {
    name        = name, severity = "ticket", threshold = 1, period = local.hour, periods = 1, breaching = 1
    description = "DynamoDB throttles too many writes of records."
    expression  = format(local.share, "FILL(throttles, 0)", "FILL(units, 0)")
    metrics = { for id, metric in { throttles = "WriteThrottleEvents", units = "ConsumedWriteCapacityUnits" } : id => {
      namespace = "AWS/DynamoDB", name = metric, dimensions = merge({ TableName = var.table.name }, index), label = null
    } }
  } }

  expressions = merge(local.of_operations, local.of_functions, local.of_the_table)
}

resource "aws_cloudwatch_metric_alarm" "expressions" {
  for_each = local.expressions

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
    expression  = each.value.expression
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
    ScanLate = {
      namespace   = var.namespace, metric = "once.scan.age", statistic = "Maximum", dimensions = { operation = "all" }
      comparison  = "GreaterThanThreshold", threshold = try(120 * var.reconciler.scan_minutes, 0), missing = "notBreaching"
      description = "No scan for abandoned runs has ended for too long: they wait, and nothing settles them."
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
    } : name => merge(alarm, { severity = "page", period = local.every, periods = local.runs, runbook = name })
  if var.reconciler != null && (name != "ScanLate" || try(var.reconciler.scan_minutes, 0) > 0) }

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
