# SPDX-License-Identifier: Apache-2.0

variable "name" {
  description = "The name of the schedule, with which the names of the queues begin."
  type        = string

  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]{1,64}$", var.name))
    error_message = "The name has 1 to 64 letters, digits, underscores and hyphens."
  }
}

variable "function" {
  description = "The function that runs idempotent.Reconciler: the resource `aws_lambda_function` or `aws_lambda_alias`. Set the variables of the output `environment` for it. Its `OnExhausted` must send the records that it gives up to the queue whose URL is in `ONCE_EXHAUSTED_QUEUE_URL`, which ends with the name of the table's `store` if it has one."
  type = object({
    arn            = string
    function_name  = string
    logging_config = optional(list(object({ application_log_level = optional(string) })), [])
  })
}

variable "role" {
  description = "The name of the function's role, which gets the permissions of a reconciler."
  type        = string
}

variable "table" {
  description = "The table to reconcile: the module `table`, or an object with the same outputs. In a table with other items, `prefix` begins the keys of the records. `consistency` is `strong` for a global table with strong consistency across regions."
  type = object({
    arn         = string
    kms_key_arn = optional(string)
    chunks      = optional(object({ arn = string }))
    prefix      = optional(string, "")
    consistency = optional(string)
    store       = optional(string)
  })
}

variable "every_minutes" {
  description = "The interval between two runs."
  type        = number
  default     = 1

  validation {
    condition     = var.every_minutes >= 1 && floor(var.every_minutes) == var.every_minutes
    error_message = "EventBridge schedules support whole minutes only: set 1 or more."
  }
}

variable "scan_every_minutes" {
  description = "The longest pause between two scans for runs whose process ended without a warning. After a scan that found one the next begins after an hour, except in a table with a prefix. 0: no scans, and no permission for them. Default: 1440, or the interval between two runs if that is longer."
  type        = number
  default     = null

  validation {
    condition     = var.scan_every_minutes == null ? true : var.scan_every_minutes >= 0 && floor(var.scan_every_minutes) == var.scan_every_minutes
    error_message = "The pause between two scans is a whole number of minutes, or 0 for no scans."
  }
}

variable "scan_segments" {
  description = "How many parts of the table a scan reads in parallel, each at 8 MB a second."
  type        = number
  default     = 1

  validation {
    condition     = var.scan_segments >= 1 && var.scan_segments <= 1000 && floor(var.scan_segments) == var.scan_segments
    error_message = "The segments of a scan are a whole number from 1 to 1,000."
  }
}

variable "kms_key_arn" {
  description = "The ARN of a customer managed key that encrypts the queues. Its policy must allow events.amazonaws.com and the role to use it (kms:Decrypt, kms:GenerateDataKey). Default: a key that SQS owns, without cost."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/", var.kms_key_arn))
    error_message = "The key is not the ARN of a KMS key, such as arn:aws:kms:eu-west-1:123456789012:key/…: an alias is not enough."
  }
}

variable "tags" {
  description = "Tags of the queues and the schedule."
  type        = map(string)
  default     = {}
}
