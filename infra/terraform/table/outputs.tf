# SPDX-License-Identifier: Apache-2.0

output "name" {
  description = "The table's name: the value of ONCE_TABLE for every function."
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
