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
