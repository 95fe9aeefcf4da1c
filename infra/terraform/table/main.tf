# SPDX-License-Identifier: Apache-2.0

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.22" # the first one with global_table_witness
    }
  }
}

locals {
  strong = var.consistency == "strong"
  suffix = var.store == null ? "" : "_${upper(replace(var.store, "-", "_"))}" # as dynamostore.Open reads them
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

  # DynamoDB has none in a table with strong consistency across regions.
  dynamic "ttl" {
    for_each = local.strong ? [] : ["ttl"]

    content {
      attribute_name = ttl.value
      enabled        = true
    }
  }

  # As in the examples of the provider, and as the CDK creates a table with replicas.
  stream_enabled   = local.strong ? true : null
  stream_view_type = local.strong ? "NEW_AND_OLD_IMAGES" : null

  dynamic "replica" {
    for_each = var.replicas

    content {
      region_name                 = replica.key
      consistency_mode            = "STRONG"
      deletion_protection_enabled = var.deletion_protection
      kms_key_arn                 = replica.value.kms_key_arn
      point_in_time_recovery      = var.point_in_time_recovery
      propagate_tags              = true
    }
  }

  dynamic "global_table_witness" {
    for_each = var.witness[*]

    content {
      region_name = global_table_witness.value
    }
  }

  lifecycle {
    precondition {
      condition     = !local.strong || length(var.replicas) > 0 && length(distinct(concat(keys(var.replicas), var.witness[*]))) == 2
      error_message = "Strong consistency needs three different regions, and the provider's is one of them: set two replicas, or one replica and a witness."
    }

    precondition {
      condition     = local.strong || length(var.replicas) == 0 && var.witness == null
      error_message = "Replicas or a witness are set without consistency = \"strong\": with eventual consistency two regions that get the same key run it twice."
    }

    precondition {
      condition     = !local.strong || !var.keep_large_results_apart
      error_message = "keep_large_results_apart is set, and with strong consistency, where only a reconciler deletes expired items, it may do so in the table of the records only: remove it."
    }

    precondition {
      condition     = alltrue([for r in var.replicas : (r.kms_key_arn == null) == (var.kms_key_arn == null)])
      error_message = "A key belongs to one region: set kms_key_arn of the table and of each replica, or none of them."
    }
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
