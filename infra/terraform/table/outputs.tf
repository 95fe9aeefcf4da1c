# SPDX-License-Identifier: Apache-2.0

output "name" {
  description = "The table's name."
  value       = aws_dynamodb_table.records.name
}

output "arn" {
  description = "The table's ARN."
  value       = aws_dynamodb_table.records.arn
}

output "kms_key_arn" {
  description = "The ARN of the customer managed key, or null."
  value       = var.kms_key_arn
}

output "chunks" {
  description = "The table of large results: its name and ARN; or null."
  value       = one([for t in aws_dynamodb_table.chunks : { name = t.name, arn = t.arn }])
}

output "store" {
  description = "The name of the table for a function that uses several, or null."
  value       = var.store
}

output "consistency" {
  description = "`strong`, or null for a table in one region."
  value       = var.consistency
}

output "replicas" {
  description = "The replicas by region, as tables for the modules `access`, `reconciler` and `alarms` in that region."
  value = { for region, r in var.replicas : region => {
    name        = aws_dynamodb_table.records.name
    arn         = join(":", [for i, part in split(":", aws_dynamodb_table.records.arn) : i == 3 ? region : part]) # arn:PARTITION:dynamodb:REGION:…
    kms_key_arn = r.kms_key_arn
    chunks      = null
    store       = var.store
    consistency = var.consistency
  } }
}

output "environment" {
  description = "The variables that describe the table to dynamostore.Open and dynamostore.FromEnvironment. Set them for every function, so that all agree, in the regions of the replicas too. The module `environment` joins those of several modules."
  value = merge(
    { "ONCE_TABLE${local.suffix}" = aws_dynamodb_table.records.name },
    { for t in aws_dynamodb_table.chunks : "ONCE_CHUNK_TABLE${local.suffix}" => t.name },
    { for c in var.consistency[*] : "ONCE_CONSISTENCY${local.suffix}" => c },
  )
}
