# SPDX-License-Identifier: Apache-2.0

mock_provider "aws" {}

variables {
  name = "records"
}

run "defaults" {
  command = plan

  assert {
    condition     = aws_dynamodb_table.records.deletion_protection_enabled && aws_dynamodb_table.records.point_in_time_recovery[0].enabled
    error_message = "The table is not protected and backed up."
  }

  assert {
    condition     = !aws_dynamodb_table.records.server_side_encryption[0].enabled
    error_message = "The table does not have the key that DynamoDB owns."
  }
}

run "one_table_by_default" {
  command = plan

  assert {
    condition     = length(aws_dynamodb_table.chunks) == 0 && output.chunks == null && jsonencode(output.environment) == jsonencode({ ONCE_TABLE = "records" })
    error_message = "The environment is ${jsonencode(output.environment)}"
  }
}

run "large_results_apart" {
  command = plan

  variables {
    keep_large_results_apart = true
    kms_key_arn              = "arn:aws:kms:eu-west-1:123456789012:key/4f1c"
  }

  assert {
    condition     = aws_dynamodb_table.chunks[0].server_side_encryption[0].kms_key_arn == var.kms_key_arn && length(aws_dynamodb_table.chunks[0].global_secondary_index) == 0
    error_message = "The table of large results has another key, or an index."
  }

  assert {
    condition     = jsonencode(output.environment) == jsonencode({ ONCE_TABLE = "records", ONCE_CHUNK_TABLE = "records-chunks" })
    error_message = "The environment is ${jsonencode(output.environment)}"
  }
}

run "a_named_store" {
  command = plan

  variables {
    store                    = "old-orders"
    keep_large_results_apart = true
    tags                     = { team = "payments" }
  }

  assert {
    condition     = jsonencode(output.environment) == jsonencode({ ONCE_TABLE_OLD_ORDERS = "records", ONCE_CHUNK_TABLE_OLD_ORDERS = "records-chunks" })
    error_message = "The environment is ${jsonencode(output.environment)}"
  }

  assert {
    condition     = aws_dynamodb_table.chunks[0].tags.team == "payments" && aws_dynamodb_table.chunks[0].deletion_protection_enabled
    error_message = "The table of large results does not follow the table."
  }
}

run "a_name_that_is_no_variable" {
  command = plan

  variables {
    store = "Orders"
  }

  expect_failures = [var.store]
}

run "customer_managed_key" {
  command = plan

  variables {
    kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/4f1c"
  }

  assert {
    condition     = aws_dynamodb_table.records.server_side_encryption[0].kms_key_arn == "arn:aws:kms:eu-west-1:123456789012:key/4f1c"
    error_message = "The table is not encrypted with the key."
  }
}

run "a_name_that_dynamodb_refuses" {
  command = plan

  variables {
    name = "a b"
  }

  expect_failures = [var.name]
}

run "an_alias_as_key" {
  command = plan

  variables {
    kms_key_arn = "alias/records"
  }

  expect_failures = [var.kms_key_arn]
}
