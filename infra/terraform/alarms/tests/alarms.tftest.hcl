# SPDX-License-Identifier: Apache-2.0

mock_provider "aws" {}

variables {
  name             = "charges"
  namespace        = "Charges"
  operations       = ["charge"]
  table            = { name = "records" }
  page_topic_arn   = "arn:aws:sns:eu-west-1:123456789012:pager"
  ticket_topic_arn = "arn:aws:sns:eu-west-1:123456789012:tickets"
}

run "without_a_reconciler" {
  command = plan

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.metrics) == 0 && !contains(keys(aws_cloudwatch_metric_alarm.expressions), "Exhausted-charge")
    error_message = "There are alarms on a reconciler."
  }

  assert {
    condition     = length(aws_cloudwatch_dashboard.dashboard) == 0
    error_message = "There is a dashboard."
  }
}

run "a_rare_reconciler" {
  command = plan

  variables {
    store_error_rate = 2
    misuse_rate      = 3
    reconciler = {
      function_name     = "reconciler"
      every_minutes     = 60
      exhausted_queue   = { name = "exhausted" }
      undelivered_queue = { name = "undelivered" }
    }
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.metrics["OldestUnknown"].threshold == 10800 && aws_cloudwatch_metric_alarm.metrics["OldestUnknown"].period == 3600
    error_message = "The alarm on the age does not follow the interval."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.metrics["ReconcilerSilent"].period == 3600
    error_message = "The alarm on missing runs does not follow the interval."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.expressions["StoreErrors-charge"].threshold == 2 && aws_cloudwatch_metric_alarm.expressions["Misuse-charge"].threshold == 3
    error_message = "The alarms do not have the thresholds that were set."
  }
}

run "no_operation" {
  command = plan

  variables {
    operations = []
  }

  expect_failures = [var.operations]
}

run "an_operation_twice" {
  command = plan

  variables {
    operations = ["charge", "charge"]
  }

  expect_failures = [var.operations]
}

run "no_namespace" {
  command = plan

  variables {
    namespace = ""
  }

  expect_failures = [var.namespace]
}

run "no_one_to_notify" {
  command = plan

  variables {
    page_topic_arn = null
  }

  expect_failures = [check.notifications]
}
