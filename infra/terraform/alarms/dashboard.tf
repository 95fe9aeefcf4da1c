# SPDX-License-Identifier: Apache-2.0

data "aws_region" "current" {}

locals {
  region = data.aws_region.current.region

  arns = { for severity in keys(local.topics) : severity => concat(
    [for id, alarm in local.expressions : aws_cloudwatch_metric_alarm.expressions[id].arn if alarm.notifies == severity],
    [for id, alarm in local.metrics : aws_cloudwatch_metric_alarm.metrics[id].arn if alarm.notifies == severity],
  ) }

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
      properties = { title = "Alarms", alarms = concat(local.arns.page, local.arns.ticket, local.arns.look) }
    }],
    flatten([for y, row in local.catalogue.graphs : [for x, graph in row : {
      type = "metric", x = 24 / length(row) * x, y = local.header + local.height * y, width = 24 / length(row), height = local.height
      properties = {
        title  = graph.title
        view   = "timeSeries"
        region = local.region
        metrics = [for operation in graph.of == "gauges" ? ["all"] : var.dashboard_operations :
          [var.namespace, graph.metric, "operation", operation, merge({ period = 60, stat = graph.statistic }, graph.of == "gauges" ? {} : { label = operation })]
        ]
        yAxis = {}
      }
    }]]),
  ) })
}
