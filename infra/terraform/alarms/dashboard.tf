# SPDX-License-Identifier: Apache-2.0

data "aws_region" "current" {}

locals {
  region = data.aws_region.current.region

  alarms = { for severity in keys(local.topics) : severity => concat(
    [for id, alarm in local.expressions : aws_cloudwatch_metric_alarm.expressions[id].arn if alarm.severity == severity],
    [for id, alarm in merge(local.of_the_reconciler, local.of_queues) : aws_cloudwatch_metric_alarm.metrics[id].arn if alarm.severity == severity],
  ) }

  # Each row is a list of graphs: their title, and a metric of each operation or of all together.
  rows = [
    [for graph in [["Requests", "request_ended"], ["First requests", "reserved"], ["Replays", "replayed"], ["Refused: in progress", "in_progress"]] :
    { title = graph[0], metric = "once.${graph[1]}", stat = "Sum", all = false }],
    [for graph in [["Outcomes that became unknown", "marked_unknown"], ["Refused: outcome unknown", "unresolved"], ["Settled by evidence", "resolved"], ["Given up by reconciliation", "reconcile_exhausted"]] :
    { title = graph[0], metric = "once.${graph[1]}", stat = "Sum", all = false }],
    [for graph in [["Keys used for other requests", "mismatch"], ["Store errors", "store_error"], ["Outcomes not stored", "completion_failed"], ["Contradictions", "contradicted"]] :
    { title = graph[0], metric = "once.${graph[1]}", stat = "Sum", all = false }],
    [for graph in [["Claim, 99th percentile (seconds)", "claim.duration"], ["Handler, 99th percentile (seconds)", "handler.duration"], ["Storing the outcome, 99th percentile (seconds)", "settle.duration"]] :
    { title = graph[0], metric = "once.${graph[1]}", stat = "p99", all = false }],
    [for graph in [["Unknown outcomes", "unknown.records"], ["Age of the oldest unknown outcome (seconds)", "unknown.oldest_age"], ["Released runs that no request has continued", "released.records"], ["Age of the oldest of them (seconds)", "released.oldest_age"]] :
    { title = graph[0], metric = "once.${graph[1]}", stat = "Maximum", all = true }],
  ]

  height = 6
  header = 3
}

resource "aws_cloudwatch_dashboard" "dashboard" {
  for_each = toset(var.dashboard_name[*])

  dashboard_name = each.value

  lifecycle {
    precondition {
      condition     = length(var.dashboard_operations) > 0
      error_message = "Set dashboard_operations to the operations that the dashboard shows."
    }
  }

  dashboard_body = jsonencode({ widgets = concat(
    [{
      type       = "alarm", x = 0, y = 0, width = 24, height = local.header
      properties = { title = "Alarms", alarms = concat(local.alarms.page, local.alarms.ticket, local.alarms.look) }
    }],
    flatten([for y, row in local.rows : [for x, graph in row : {
      type = "metric", x = 24 / length(row) * x, y = local.header + local.height * y, width = 24 / length(row), height = local.height
      properties = {
        title  = graph.title
        view   = "timeSeries"
        region = local.region
        metrics = [for operation in graph.all ? ["all"] : var.dashboard_operations :
          [var.namespace, graph.metric, "operation", operation, merge({ period = local.minute, stat = graph.stat }, graph.all ? {} : { label = operation })]
        ]
        yAxis = {}
      }
    }]]),
  ) })
}
