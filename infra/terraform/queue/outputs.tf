# SPDX-License-Identifier: Apache-2.0

output "url" {
  description = "The queue's URL, to which messages are sent."
  value       = aws_sqs_queue.messages.url
}

output "arn" {
  description = "The queue's ARN."
  value       = aws_sqs_queue.messages.arn
}

output "dead_letter_queue" {
  description = "The dead-letter queue: its name (for the module `alarms`), ARN and URL."
  value = {
    name = aws_sqs_queue.dead.name
    arn  = aws_sqs_queue.dead.arn
    url  = aws_sqs_queue.dead.url
  }
}
