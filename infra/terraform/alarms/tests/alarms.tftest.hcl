# SPDX-License-Identifier: Apache-2.0

mock_provider "aws" {}

variables {
  name             = "charges"
  namespace        = "Charges"
  functions        = [{ function_name = "charge", timeout = 10 }]
  table            = { name = "records" }
  page_topic_arn   = "arn:aws:sns:eu-west-1:123456789012:pager"
  ticket_topic_arn = "arn:aws:sns:eu-west-1:123456789012:tickets"
}

run "without_a_reconciler" {
  command = plan

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.metrics) == 0 && !contains(keys(aws_cloudwatch_metric_alarm.expressions), "Exhausted")
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
      scan_minutes      = 0
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
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.metrics), "ScanLate")
    error_message = "There is an alarm on scans, although there are none."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.expressions["StoreErrors"].threshold == 2 && aws_cloudwatch_metric_alarm.expressions["Misuse"].threshold == 3
    error_message = "The alarms do not have the thresholds that were set."
  }
}

run "a_set_for_each_operation" {
  command = plan

  variables {
    operations = ["charge", "refund"]
  }

  assert {
    condition     = contains(keys(aws_cloudwatch_metric_alarm.expressions), "StoreErrors-refund") && !contains(keys(aws_cloudwatch_metric_alarm.expressions), "StoreErrors")
    error_message = "There is not one set for each operation."
  }
}

run "a_slow_function" {
  command = plan

  variables {
    functions = [{ function_name = "charge", timeout = 600 }]
  }

  assert {
    condition     = contains(keys(aws_cloudwatch_metric_alarm.expressions), "FunctionFailsLong-charge") && !contains(keys(aws_cloudwatch_metric_alarm.expressions), "FunctionFails-charge")
    error_message = "An alarm looks back less than an invocation can last."
  }
}

run "a_function_that_takes_hours" {
  command = plan

  variables {
    functions = [{ function_name = "charge", timeout = 6900 }]
  }

  expect_failures = [var.functions]
}

run "a_log_filter_at_info" {
  command = plan

  variables {
    functions = [{ function_name = "charge", logging_config = [{ application_log_level = "INFO" }] }]
  }
}

run "a_log_filter_above_info" {
  command = plan

  variables {
    functions = [{ function_name = "charge", logging_config = [{ application_log_level = "WARN" }] }]
  }

  expect_failures = [check.log_level]
}

run "no_function" {
  command = plan

  variables {
    functions = []
  }

  expect_failures = [check.metrics]
}

run "a_dashboard_of_nothing" {
  command = plan

  variables {
    dashboard_name = "charges"
  }

  expect_failures = [aws_cloudwatch_dashboard.dashboard]
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

run "a_namespace_of_aws" {
  command = plan

  variables {
    namespace = "AWS/Charges"
  }

  expect_failures = [var.namespace]
}

run "all_operations" {
  command = plan

  variables {
    operations = ["*"]
  }

  expect_failures = [var.operations]
}

run "a_pattern_of_record_ids" {
  command = plan

  variables {
    operations = ["POST /charges#*"]
  }

  expect_failures = [var.operations]
}

run "a_method_in_lower_case" {
  command = plan

  variables {
    operations = ["post /charges"]
  }

  expect_failures = [var.operations]
}

run "no_one_to_notify" {
  command = plan

  variables {
    page_topic_arn = null
  }

  expect_failures = [check.notifications]
}
