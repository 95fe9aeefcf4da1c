# SPDX-License-Identifier: Apache-2.0

variable "table" {
  description = "The table: the module `table`, or an object with the same outputs. In a table with other items, `prefix` begins the keys of the records. `consistency` is `strong` for a global table with strong consistency across regions."
  type = object({
    arn         = string
    kms_key_arn = optional(string)
    chunks      = optional(object({ arn = string }))
    prefix      = optional(string, "")
    consistency = optional(string)
  })
}

variable "role" {
  description = "The name of the role that gets the permissions."
  type        = string
}

variable "may" {
  description = "What the role does: `handler` stores the records of its requests, `reconciler` finds and settles due records, `viewer` uses the commands of `once` that only read, and `operator` all but `once table create`."
  type        = string

  validation {
    condition     = contains(["handler", "reconciler", "viewer", "operator"], var.may)
    error_message = "A role is a handler, a reconciler, a viewer or an operator."
  }
}

variable "operations" {
  description = "The operations of a handler's code, with which its record ids begin. The role can use no other records of the table. `[\"*\"]` stands for all. Required for a handler."
  type        = list(string)
  default     = null

  validation {
    condition     = var.operations == null ? true : length(var.operations) > 0 && !contains(var.operations, "")
    error_message = "List the names of the operations, or [\"*\"] for all records."
  }

  validation {
    condition     = alltrue([for o in coalesce(var.operations, []) : !can(regex("#[*?]*$", o))])
    error_message = "An operation is a name, such as \"POST /charges\", and no pattern of record ids: remove the # at its end."
  }

  validation {
    condition     = alltrue([for o in coalesce(var.operations, []) : !can(regex("^(?i:get|head|post|put|patch|delete|options) /", o)) || can(regex("^[A-Z]+ /", o))])
    error_message = "The method of an operation has capital letters, such as \"POST /charges\"."
  }
}

variable "scans" {
  description = "Whether a reconciler may read the whole table. Without it, set `ONCE_SCAN_EVERY` to `off` for its function. A table with strong consistency needs it."
  type        = bool
  default     = true
}

variable "name" {
  description = "The name of the role's inline policy. A role can have one policy with a name. Default: `once-`, the value of `may`, the name of the table, and a part that makes it unique."
  type        = string
  default     = null
}
