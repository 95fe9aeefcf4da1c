# SPDX-License-Identifier: Apache-2.0

locals {
  # A record's key is OPERATION#HASH, and the hash has 43 characters. The key of a piece of a large result, a chunk, is the
  # record's key, a write id and a number. IAM reads * and ? as wildcards, except as $${*} and $${?}.
  all        = var.may != "handler" || contains(coalesce(var.operations, []), "*")
  operations = local.all ? ["*"] : [for o in coalesce(var.operations, []) : replace(replace(replace(o, "$", "$${$}"), "*", "$${*}"), "?", "$${?}")]
  hash       = "#???????????????????????????????????????????"
  records    = [for o in local.operations : "${o}${local.hash}"]
  chunks     = [for o in local.operations : "${o}${local.hash}#*"]
  scan       = "#scan" # the item with the position of the reconciler's scan

  read  = { actions = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"], keys = [] }
  query = { actions = ["dynamodb:Query"], keys = [] }

  # Batches write without a condition, so they are for chunks only.
  on_table = {
    handler = [
      { actions = ["dynamodb:PutItem", "dynamodb:GetItem"], keys = local.records },
      { actions = ["dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"], keys = local.chunks },
    ]
    reconciler = [
      { actions = ["dynamodb:PutItem", "dynamodb:GetItem"], keys = concat(local.records, [local.scan]) },
      local.query,
      { actions = ["dynamodb:Scan"], keys = [] },
      { actions = ["dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"], keys = local.chunks },
    ]
    viewer = [local.read, local.query]
    operator = [
      local.read,
      local.query,
      { actions = ["dynamodb:PutItem", "dynamodb:DeleteItem"], keys = concat(local.records, [local.scan]) },
      { actions = ["dynamodb:BatchWriteItem"], keys = local.chunks },
    ]
  }

  # A request without keys, such as a scan, would meet ForAllValues alone.
  conditions = { for name, p in local.on_table[var.may] : name => {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = p.keys }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  } if length(p.keys) > 0 }

  statements = [for name, p in local.on_table[var.may] : merge(
    { Effect = "Allow", Action = p.actions, Resource = p == local.query ? "${var.table.arn}/index/recovery" : var.table.arn },
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
  name   = coalesce(var.name, "once-${var.may}")
  role   = var.role
  policy = local.policy

  lifecycle {
    precondition {
      condition     = (var.operations != null) == (var.may == "handler")
      error_message = "A handler needs operations, or [\"*\"] for all records. A reconciler, a viewer and an operator use the records of all operations."
    }
  }
}
