# SPDX-License-Identifier: Apache-2.0

variable "name" {
  description = "The queue's name. The dead-letter queue has the same name with `-dead`."
  type        = string

  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]{1,75}$", var.name))
    error_message = "The name has 1 to 75 letters, digits, underscores and hyphens; a FIFO queue is not supported."
  }
}

variable "function" {
  description = "The function that processes the messages, with a handler of lambdabatch: the resource `aws_lambda_function`."
  type = object({
    arn     = string
    timeout = number
  })
}

variable "role" {
  description = "The name of the function's role, which gets the permissions to receive messages."
  type        = string
}

variable "outcome_retention_seconds" {
  description = "How long the function stores outcomes: the value that its code passes to lambdabatch (`Operation.Retention`, or `Redelivery`). Default: that package's default, 23 days, or 4 days and 12 hours with `no_redrive`."
  type        = number
  default     = null
}

variable "no_redrive" {
  description = "Declares that messages of the dead-letter queue are never moved back. Set it if the function's code sets `NoRedrive` of lambdabatch."
  type        = bool
  default     = false
}

variable "visibility_timeout_seconds" {
  description = "How long a received message is hidden. Default: the least that is allowed, six times the function's time-out plus the batching window."
  type        = number
  default     = null

  validation {
    condition     = var.visibility_timeout_seconds == null ? true : var.visibility_timeout_seconds <= 43200
    error_message = "A message can be hidden for 12 hours at most."
  }
}

variable "message_retention_seconds" {
  description = "How long the queue retains a message."
  type        = number
  default     = 345600

  validation {
    condition     = var.message_retention_seconds >= 60 && var.message_retention_seconds <= 1209600
    error_message = "A queue retains messages from 60 s to 14 days."
  }
}

variable "dead_letter_retention_seconds" {
  description = "How long the dead-letter queue retains a message, from the time at which it was sent to the queue."
  type        = number
  default     = 1209600

  validation {
    condition     = var.dead_letter_retention_seconds >= 60 && var.dead_letter_retention_seconds <= 1209600
    error_message = "A queue retains messages from 60 s to 14 days."
  }
}

variable "max_receive_count" {
  description = "After how many deliveries a message moves to the dead-letter queue."
  type        = number
  default     = 5

  validation {
    condition     = var.max_receive_count >= 1 && var.max_receive_count <= 1000
    error_message = "A message is delivered 1 to 1,000 times before it moves to the dead-letter queue."
  }
}

variable "batch_size" {
  description = "The largest number of messages in an invocation."
  type        = number
  default     = 10
}

variable "maximum_batching_window_in_seconds" {
  description = "How long Lambda waits for a full batch."
  type        = number
  default     = 0
}

variable "kms_key_arn" {
  description = "The ARN of a customer managed key that encrypts the queues. Its policy must allow the role to use it (kms:Decrypt), and who sends the messages (kms:Decrypt, kms:GenerateDataKey). Default: a key that SQS owns, without cost."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/", var.kms_key_arn))
    error_message = "The key is not the ARN of a KMS key, such as arn:aws:kms:eu-west-1:123456789012:key/…: an alias is not enough."
  }
}

variable "tags" {
  description = "Tags of the queues and the event source mapping."
  type        = map(string)
  default     = {}
}
