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
  description = "The function that runs idempotent.Reconciler: the resource `aws_lambda_function`. Its `OnExhausted` must send the records that it gives up to the queue whose URL is in `ONCE_EXHAUSTED_QUEUE_URL`: set that variable to the output `exhausted_queue.url`."
  type = object({
    arn           = string
    function_name = string
  })
}

variable "role" {
  description = "The name of the function's role, which gets the permissions of a reconciler."
  type        = string
}

variable "table" {
  description = "The table to reconcile: the module `table`, or an object with the same outputs. In a table with other items, `prefix` begins the keys of the records."
  type = object({
    arn           = string
    kms_key_arn   = optional(string)
    chunks        = optional(object({ arn = string }))
    index_running = optional(bool, false)
    prefix        = optional(string, "")
  })
}

variable "every_minutes" {
  description = "The interval between two runs."
  type        = number
  default     = 1

  validation {
    condition     = var.every_minutes >= 1 && floor(var.every_minutes) == var.every_minutes
    error_message = "EventBridge schedules support whole minutes only."
  }
}

variable "tags" {
  description = "Tags of the queues and the schedule."
  type        = map(string)
  default     = {}
}
