# SPDX-License-Identifier: Apache-2.0

variable "name" {
  description = "With this the names of the alarms begin, such as `charges-StoreErrors`."
  type        = string
}

variable "namespace" {
  description = "The namespace of the functions' metrics: the value of ONCE_METRICS_NAMESPACE, which their code passes to emf.New. Alarms on metrics without data never ring."
  type        = string

  validation {
    condition     = length(var.namespace) > 0
    error_message = "Set the namespace of the functions' metrics."
  }

  validation {
    condition     = !startswith(var.namespace, "AWS/")
    error_message = "Names that begin with AWS/ are for services of AWS: set another, or emf.New fails and the functions do not start."
  }
}

variable "operations" {
  description = "Operations that get a set of alarms on their requests each, so that an alarm names the operation and has its own shares. Default: one set for all operations of the namespace."
  type        = list(string)
  default     = []

  validation {
    condition     = !contains(var.operations, "") && length(distinct(var.operations)) == length(var.operations)
    error_message = "List the name of each operation once. Record ids begin with it."
  }

  validation {
    condition     = !contains(var.operations, "*") && alltrue([for o in var.operations : !can(regex("#[*?]*$", o))])
    error_message = "An operation is a name, such as \"POST /charges\": no metric has the name of a pattern, and its alarms would never ring."
  }

  validation {
    condition     = alltrue([for o in var.operations : !can(regex("^(?i:get|head|post|put|patch|delete|options) /", o)) || can(regex("^[A-Z]+ /", o))])
    error_message = "The method of an operation has capital letters, such as \"POST /charges\"."
  }
}

variable "functions" {
  description = "The functions whose code prints the metrics: the resources, or objects with their names and time-outs in seconds. Each has alarms on its own errors, which also ring if its code does not start. A plan warns if a function's application log level is above INFO. The function of the reconciler need not be listed."
  type = list(object({
    function_name  = string
    timeout        = optional(number, 3) # Lambda's default
    logging_config = optional(list(object({ application_log_level = optional(string) })), [])
  }))
  default = []

  validation {
    condition     = length(distinct(var.functions[*].function_name)) == length(var.functions)
    error_message = "List each function once."
  }

  validation {
    condition     = alltrue([for f in var.functions : f.timeout + 300 < 7200])
    error_message = "FunctionFailsLong looks back two hours. It would not see the errors of a function with this time-out: they are reported up to five minutes after it."
  }
}

variable "table" {
  description = "The table whose throttles raise an alarm: the module `table`, or an object with its name."
  type        = object({ name = string })
}

variable "reconciler" {
  description = "The reconciler of these operations: the module `reconciler`. Default: no reconciler; every unknown outcome then raises a ticket."
  type = object({
    function_name     = string
    every_minutes     = number
    scan_minutes      = number
    exhausted_queue   = object({ name = string })
    undelivered_queue = object({ name = string })
  })
  default = null
}

variable "dead_letter_queues" {
  description = "Names of other queues that should stay empty."
  type        = list(string)
  default     = []
}

variable "page_topic_arn" {
  description = "The topic for conditions that need an operator at once: requests are refused, or nothing settles unknown outcomes. A topic with a policy of its own must allow cloudwatch.amazonaws.com to publish, and its key to be used."
  type        = string
  default     = null
}

variable "ticket_topic_arn" {
  description = "The topic for single records that need an operator within a day."
  type        = string
  default     = null
}

variable "look_topic_arn" {
  description = "The topic for what is unusual and may be a client's mistake."
  type        = string
  default     = null
}

variable "runbook_url" {
  description = "The page with a procedure for each alarm, which descriptions link to."
  type        = string
  default     = "https://github.com/once-lambda/once/blob/main/docs/alarms.md"
}

variable "oldest_unknown_seconds" {
  description = "The age of an unknown outcome above which there is an alarm, if it is exceeded in three runs of the reconciler. Default: 15 minutes, or three times the interval of the reconciler if that is longer."
  type        = number
  default     = null
}

variable "store_error_rate" {
  description = "How many calls to the store may fail for each 100 requests. There is an alarm if it is exceeded in three of five minutes. Default: 5."
  type        = number
  default     = null
}

variable "misuse_rate" {
  description = "How many of 100 requests in an hour may use a key with another payload. Default: 1."
  type        = number
  default     = null
}

variable "dashboard_name" {
  description = "The name of a dashboard of the alarms and the metrics. Default: no dashboard."
  type        = string
  default     = null
}

variable "dashboard_operations" {
  description = "The operations that the dashboard shows. Required with dashboard_name."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of the alarms."
  type        = map(string)
  default     = {}
}
