# SPDX-License-Identifier: Apache-2.0

mock_provider "aws" {}

variables {
  name     = "reconciler"
  function = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:reconciler", function_name = "reconciler" }
  role     = "reconciler"
  table    = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/records" }
}

run "every_minute" {
  command = plan

  assert {
    condition     = aws_cloudwatch_event_rule.schedule.schedule_expression == "rate(1 minute)"
    error_message = "The schedule is ${aws_cloudwatch_event_rule.schedule.schedule_expression}"
  }
}

run "every_hour" {
  command = plan

  variables {
    every_minutes = 60
  }

  assert {
    condition     = aws_cloudwatch_event_rule.schedule.schedule_expression == "rate(60 minutes)"
    error_message = "The schedule is ${aws_cloudwatch_event_rule.schedule.schedule_expression}"
  }
}

run "half_a_minute" {
  command = plan

  variables {
    every_minutes = 1.5
  }

  expect_failures = [var.every_minutes]
}

run "a_name_that_sqs_refuses" {
  command = plan

  variables {
    name = "my reconciler"
  }

  expect_failures = [var.name]
}

run "default_scan" {
  command = plan

  assert {
    condition     = jsonencode(local.scan) == jsonencode({})
    error_message = "The settings of the scan are ${jsonencode(local.scan)}"
  }
}

run "own_scan" {
  command = plan

  variables {
    scan_every_minutes = 15
    scan_segments      = 4
  }

  assert {
    condition     = jsonencode(local.scan) == jsonencode({ ONCE_SCAN_EVERY = "15m", ONCE_SCAN_SEGMENTS = "4" })
    error_message = "The settings of the scan are ${jsonencode(local.scan)}"
  }
}

run "scan_of_a_rare_reconciler" {
  command = plan

  variables {
    every_minutes = 2880
  }

  assert {
    condition     = jsonencode(local.scan) == jsonencode({ ONCE_SCAN_EVERY = "2880m" })
    error_message = "The settings of the scan are ${jsonencode(local.scan)}"
  }
}

run "no_scan" {
  command = plan

  variables {
    scan_every_minutes = 0
  }

  assert {
    condition     = jsonencode(local.scan) == jsonencode({ ONCE_SCAN_EVERY = "off" }) && length(regexall("Scan|#scan", module.access.policy)) == 0
    error_message = "The settings of the scan are ${jsonencode(local.scan)}, and the policy is ${module.access.policy}"
  }
}

run "no_scan_in_segments" {
  command = plan

  variables {
    scan_every_minutes = 0
    scan_segments      = 2
  }

  expect_failures = [aws_cloudwatch_event_rule.schedule]
}

run "scan_more_often_than_the_runs" {
  command = plan

  variables {
    every_minutes      = 30
    scan_every_minutes = 15
  }

  expect_failures = [aws_cloudwatch_event_rule.schedule]
}

run "a_named_store" {
  command = plan

  variables {
    table              = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders", store = "old-orders" }
    scan_every_minutes = 15
    scan_segments      = 4
  }

  assert {
    condition     = join(" ", keys(output.environment)) == "ONCE_EXHAUSTED_QUEUE_URL_OLD_ORDERS ONCE_SCAN_EVERY_OLD_ORDERS ONCE_SCAN_SEGMENTS_OLD_ORDERS"
    error_message = "The variables are ${join(" ", keys(output.environment))}"
  }
}

run "the_function_itself" {
  command = plan

  assert {
    condition     = aws_lambda_permission.schedule.qualifier == null && aws_sqs_queue.exhausted.sqs_managed_sse_enabled
    error_message = "There is a qualifier, or the queue has no key."
  }
}

run "an_alias" {
  command = plan

  variables {
    function = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:reconciler:live", function_name = "reconciler" }
  }

  assert {
    condition     = aws_lambda_permission.schedule.qualifier == "live" && aws_lambda_function_event_invoke_config.function.qualifier == "live"
    error_message = "The permission or the asynchronous configuration is not that of the alias."
  }
}

run "a_key_of_the_queues" {
  command = plan

  variables {
    kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/4f1c"
  }

  assert {
    condition     = aws_sqs_queue.exhausted.kms_master_key_id == var.kms_key_arn && aws_sqs_queue.undelivered.kms_master_key_id == var.kms_key_arn
    error_message = "The queues do not have the key."
  }

  assert {
    condition     = jsonencode(local.use_key[*].Resource) == jsonencode([var.kms_key_arn])
    error_message = "The function may not use the key."
  }
}

run "a_table_of_another_region" {
  command = plan

  variables {
    table = { arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/records" }
  }

  expect_failures = [aws_cloudwatch_event_rule.schedule]
}

run "half_a_segment" {
  command = plan

  variables {
    scan_segments = 1.5
  }

  expect_failures = [var.scan_segments]
}

run "a_log_filter_above_info" {
  command = plan

  variables {
    function = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:reconciler", function_name = "reconciler", logging_config = [{ application_log_level = "ERROR" }] }
  }

  expect_failures = [check.log_level]
}

run "a_strong_table_without_scans" {
  command = plan

  variables {
    table              = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/records", consistency = "strong" }
    scan_every_minutes = 0
  }

  expect_failures = [aws_cloudwatch_event_rule.schedule]
}
