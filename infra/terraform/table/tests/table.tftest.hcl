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

run "replicas_elsewhere" {
  # Terraform knows the members of a set, and an ARN, after it has applied them.
  command = apply

  variables {
    consistency = "strong"
    kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/4f1c"
    replicas    = { eu-west-1 = { kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/77aa" } }
    witness     = "eu-west-3"
  }

  override_resource {
    target = aws_dynamodb_table.records
    values = { arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/records" }
  }

  assert {
    condition     = aws_dynamodb_table.records.global_table_witness[0].region_name == "eu-west-3" && join(" ", keys(output.replicas)) == "eu-west-1"
    error_message = "The table has another witness, or the witness is a replica."
  }

  assert {
    condition     = output.replicas["eu-west-1"].arn == "arn:aws:dynamodb:eu-west-1:123456789012:table/records" && output.replicas["eu-west-1"].kms_key_arn == "arn:aws:kms:eu-west-1:123456789012:key/77aa" && output.replicas["eu-west-1"].consistency == "strong"
    error_message = "The replica is ${jsonencode(output.replicas)}"
  }
}

run "strong_consistency" {
  command = apply

  variables {
    consistency = "strong"
    store       = "orders"
    replicas    = { eu-west-1 = {}, eu-west-3 = {} }
  }

  assert {
    condition     = length(aws_dynamodb_table.records.ttl) == 0 && length(aws_dynamodb_table.records.replica) == 2 && alltrue([for r in aws_dynamodb_table.records.replica : r.consistency_mode == "STRONG" && r.deletion_protection_enabled && r.point_in_time_recovery])
    error_message = "The table has a time to live, or a replica is not protected."
  }

  assert {
    condition     = jsonencode(output.environment) == jsonencode({ ONCE_TABLE_ORDERS = "records", ONCE_CONSISTENCY_ORDERS = "strong" })
    error_message = "The environment is ${jsonencode(output.environment)}"
  }
}

run "an_unknown_consistency" {
  command = plan

  variables {
    consistency = "STRONG"
  }

  expect_failures = [var.consistency]
}

run "two_regions" {
  command = plan

  variables {
    consistency = "strong"
    replicas    = { eu-west-1 = {} }
  }

  expect_failures = [aws_dynamodb_table.records]
}

run "a_witness_beside_a_replica" {
  command = plan

  variables {
    consistency = "strong"
    replicas    = { eu-west-1 = {} }
    witness     = "eu-west-1"
  }

  expect_failures = [aws_dynamodb_table.records]
}

run "four_regions" {
  command = plan

  variables {
    consistency = "strong"
    replicas    = { eu-west-1 = {}, eu-west-3 = {} }
    witness     = "eu-west-2"
  }

  expect_failures = [aws_dynamodb_table.records]
}

run "replicas_with_eventual_consistency" {
  command = plan

  variables {
    replicas = { eu-west-1 = {} }
  }

  expect_failures = [aws_dynamodb_table.records]
}

run "strong_and_large_results_apart" {
  command = plan

  variables {
    consistency              = "strong"
    replicas                 = { eu-west-1 = {}, eu-west-3 = {} }
    keep_large_results_apart = true
  }

  expect_failures = [aws_dynamodb_table.records]
}

run "a_replica_without_a_key" {
  command = plan

  variables {
    consistency = "strong"
    kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/4f1c"
    replicas    = { eu-west-1 = {}, eu-west-3 = {} }
  }

  expect_failures = [aws_dynamodb_table.records]
}
