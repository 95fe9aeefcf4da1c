# SPDX-License-Identifier: Apache-2.0

locals {
  suffix = var.store == null ? "" : "_${upper(replace(var.store, "-", "_"))}" # of dynamostore.Variable
}

# The table of package dynamostore: billed per request, with time to live and the index that reconciliation uses to
# find records.
resource "aws_dynamodb_table" "records" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "rk"
    type = "S"
  }

  attribute {
    name = "rat"
    type = "N"
  }

  global_secondary_index {
    name               = "recovery"
    hash_key           = "rk"
    range_key          = "rat"
    projection_type    = "INCLUDE"
    non_key_attributes = ["st", "dt", "lease"]
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = var.point_in_time_recovery
  }

  server_side_encryption {
    enabled     = var.kms_key_arn != null
    kms_key_arn = var.kms_key_arn
  }
}

# The table of large results. No index lists them.
resource "aws_dynamodb_table" "chunks" {
  count = var.keep_large_results_apart ? 1 : 0

  name                        = "${var.name}-chunks"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  attribute {
    name = "pk"
    type = "S"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = var.point_in_time_recovery
  }

  server_side_encryption {
    enabled     = var.kms_key_arn != null
    kms_key_arn = var.kms_key_arn
  }
}
