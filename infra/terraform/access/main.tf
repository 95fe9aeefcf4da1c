# SPDX-License-Identifier: Apache-2.0

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }
}

locals {
  # A record's key is OPERATION#HASH, and the hash has 43 characters. The key of a piece of a large result, a chunk, is the
  # record's key, a write id and a number. IAM reads * and ? as wildcards, except as $${*} and $${?}.
  strong     = var.table.consistency == "strong"
  all        = var.may != "handler" || contains(coalesce(var.operations, []), "*")
  operations = local.all ? ["*"] : [for o in coalesce(var.operations, []) : replace(replace(replace(o, "$", "$${$}"), "*", "$${*}"), "?", "$${?}")]
  hash       = "#???????????????????????????????????????????"
  prefix     = replace(replace(replace(var.table.prefix, "$", "$${$}"), "*", "$${*}"), "?", "$${?}")
  records    = [for o in local.operations : "${local.prefix}${o}${local.hash}"]
  chunks     = [for o in local.operations : "${local.prefix}${o}${local.hash}#*"]
  scan       = "${local.prefix}#scan" # the item with the position of the reconciler's scan
  open       = "${local.prefix}#open" # what a function reads while it starts

  # Large results are in a table of their own, or with the records. Earlier ones stay with the records.
  table        = var.table.arn
  chunk_tables = [for t in [var.table.chunks] : t.arn if t != null]
  with_chunks  = one(concat(local.chunk_tables, [for arn in [local.table] : arn if length(local.chunk_tables) == 0]))
  apart        = length(local.chunk_tables) > 0

  look = concat(
    [for arn in concat([local.table], local.chunk_tables) : {
      on      = arn, keys = []
      actions = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]
    }],
    [local.query],
  )
  query = { on = "${local.table}/index/recovery", actions = ["dynamodb:Query"], keys = [] }

  # Batches write without a condition, so they are for chunks only.
  use_chunks = concat(
    [{ on = local.with_chunks, actions = ["dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"], keys = local.chunks }],
    [for arn in [local.table] : { on = arn, actions = ["dynamodb:BatchGetItem"], keys = local.chunks } if local.apart],
  )

  permissions = {
    handler = concat([{ on = local.table, actions = ["dynamodb:PutItem", "dynamodb:GetItem"], keys = concat(local.records, [local.open]) }], local.use_chunks)
    reconciler = concat(
      [{ on = local.table, actions = ["dynamodb:PutItem", "dynamodb:GetItem"], keys = concat(local.records, [local.open], [for key in [local.scan] : key if var.scans]) }],
      [local.query],
      [for arn in [local.table] : { on = arn, actions = ["dynamodb:Scan"], keys = [] } if var.scans],
      # Nothing else deletes expired items of such a table.
      [for arn in [local.table] : { on = arn, actions = ["dynamodb:DeleteItem"], keys = concat(local.records, local.chunks) } if local.strong],
      local.use_chunks,
    )
    viewer = local.look
    operator = concat(
      local.look,
      [{ on = local.table, actions = ["dynamodb:PutItem", "dynamodb:DeleteItem"], keys = concat(local.records, [local.scan]) }],
      [for arn in concat(local.chunk_tables, [local.table]) : { on = arn, actions = ["dynamodb:BatchWriteItem"], keys = local.chunks }],
    )
  }

  # A request without keys, such as a scan, would meet ForAllValues alone.
  conditions = { for name, p in local.permissions[var.may] : name => {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = p.keys }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  } if length(p.keys) > 0 }

  statements = [for name, p in local.permissions[var.may] : merge(
    { Effect = "Allow", Action = p.actions, Resource = p.on },
    { for _, c in [lookup(local.conditions, name, null)] : "Condition" => c if c != null },
  )]

  # arn:PARTITION:kms:REGION:ACCOUNT:key/ID
  key = var.table.kms_key_arn == null ? [] : split(":", var.table.kms_key_arn)
  on_key = [for arn in var.table.kms_key_arn[*] : {
    Effect = "Allow"
    Action = [
      "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
      "kms:ReEncryptFrom", "kms:ReEncryptTo",
    ]
    Resource  = arn
    Condition = { StringEquals = { "kms:ViaService" = "dynamodb.${local.key[3]}.amazonaws.com" } }
  }]

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat(local.statements, local.on_key)
  })
}

resource "aws_iam_role_policy" "access" {
  # Two policies with one name on a role would overwrite each other, so the provider completes the name.
  name        = var.name
  name_prefix = var.name == null ? "${substr("once-${var.may}-${reverse(split("/", var.table.arn))[0]}", 0, 101)}-" : null
  role        = var.role
  policy      = local.policy

  lifecycle {
    precondition {
      condition     = (var.operations != null) == (var.may == "handler")
      error_message = "A handler needs operations, or [\"*\"] for all records. A reconciler, a viewer and an operator use the records of all operations."
    }

    precondition {
      condition     = var.scans || !local.strong
      error_message = "scans is false, and in a table with strong consistency only the scan deletes expired items: remove it."
    }
  }
}
