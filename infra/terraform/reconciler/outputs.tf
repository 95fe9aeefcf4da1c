# SPDX-License-Identifier: Apache-2.0

output "exhausted_queue" {
  description = "The queue of the records that reconciliation has given up: its name, ARN and URL."
  value = {
    name = aws_sqs_queue.exhausted.name
    arn  = aws_sqs_queue.exhausted.arn
    url  = aws_sqs_queue.exhausted.url
  }
}

output "undelivered_queue" {
  description = "The queue of the scheduled events that did not reach the function: its name, ARN and URL."
  value = {
    name = aws_sqs_queue.undelivered.name
    arn  = aws_sqs_queue.undelivered.arn
    url  = aws_sqs_queue.undelivered.url
  }
}

output "function_name" {
  description = "The function's name, for the module `alarms`."
  value       = var.function.function_name
}

output "every_minutes" {
  description = "The interval between two runs, for the module `alarms`."
  value       = var.every_minutes
}

output "scan_minutes" {
  description = "The longest pause between two scans, for the module `alarms`. 0: no scans."
  value       = local.scan_minutes
}

output "environment" {
  description = "The variables of the function: the URL of the queue for records that are given up, and the settings of the scan that are not the defaults of dynamostore."
  value       = merge({ "ONCE_EXHAUSTED_QUEUE_URL${local.suffix}" = aws_sqs_queue.exhausted.url }, local.scan)
}
