# SPDX-License-Identifier: Apache-2.0

mock_provider "aws" {}

variables {
  name     = "orders"
  function = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders", timeout = 30 }
  role     = "orders"
}

run "defaults" {
  command = plan

  assert {
    condition     = aws_sqs_queue.messages.visibility_timeout_seconds == 180
    error_message = "The visibility time-out is not six times the function's time-out."
  }
}

run "visibility_below_six_time_outs" {
  command = plan

  variables {
    visibility_timeout_seconds = 179
  }

  expect_failures = [aws_sqs_queue.messages]
}

run "visibility_without_the_batching_window" {
  command = plan

  variables {
    visibility_timeout_seconds         = 180
    maximum_batching_window_in_seconds = 1
  }

  expect_failures = [aws_sqs_queue.messages]
}

# 2 × (4 days + 180 s) + 14 days
run "retention_just_enough" {
  command = plan

  variables {
    outcome_retention_seconds = 1901160
  }
}

run "retention_too_short" {
  command = plan

  variables {
    outcome_retention_seconds = 1901159
  }

  expect_failures = [aws_sqs_queue.messages]
}

run "a_longer_retention_of_the_queue" {
  command = plan

  variables {
    message_retention_seconds = 1209600
  }

  expect_failures = [aws_sqs_queue.messages]
}

run "no_redrive_needs_one_life" {
  command = plan

  variables {
    no_redrive                = true
    outcome_retention_seconds = 345780
  }
}

run "no_redrive_too_short" {
  command = plan

  variables {
    no_redrive                = true
    outcome_retention_seconds = 345779
  }

  expect_failures = [aws_sqs_queue.messages]
}

run "a_fifo_queue" {
  command = plan

  variables {
    name = "orders.fifo"
  }

  expect_failures = [var.name]
}

run "what_sqs_refuses" {
  command = plan

  variables {
    message_retention_seconds     = 59
    dead_letter_retention_seconds = 1209601
    max_receive_count             = 0
    visibility_timeout_seconds    = 43201
  }

  expect_failures = [
    var.message_retention_seconds,
    var.dead_letter_retention_seconds,
    var.max_receive_count,
    var.visibility_timeout_seconds,
  ]
}

run "customer_managed_key" {
  command = plan

  variables {
    kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/4f1c"
  }

  assert {
    condition     = aws_sqs_queue.messages.kms_master_key_id == var.kms_key_arn && aws_sqs_queue.dead.kms_master_key_id == var.kms_key_arn
    error_message = "The queues do not have the key."
  }

  assert {
    condition     = jsonencode(local.use_key[*].Resource) == jsonencode([var.kms_key_arn])
    error_message = "The role may not use the key."
  }
}

run "an_alias_as_key" {
  command = plan

  variables {
    kms_key_arn = "alias/orders"
  }

  expect_failures = [var.kms_key_arn]
}
