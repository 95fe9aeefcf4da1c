# SPDX-License-Identifier: Apache-2.0

variable "name" {
  description = "The table's name."
  type        = string

  validation {
    condition     = can(regex("^[a-zA-Z0-9_.-]{3,255}$", var.name))
    error_message = "The name of a table has 3 to 255 letters, digits, underscores, points and hyphens."
  }
}

variable "store" {
  description = "The name of the table for a function that uses several: the variables of the table end with it, such as `ONCE_TABLE_ORDERS` for `orders`, and so do those of its reconciler. The function's code opens the table with `Options.Name` of dynamostore. Default: no name."
  type        = string
  default     = null

  validation {
    condition     = var.store == null || can(regex("^[a-z0-9-]+$", var.store))
    error_message = "The name of a store has lower-case letters, digits and hyphens."
  }
}

variable "kms_key_arn" {
  description = "The ARN of a customer managed key that encrypts the table. Default: a key that DynamoDB owns, without cost."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/", var.kms_key_arn))
    error_message = "The key is not the ARN of a KMS key, such as arn:aws:kms:eu-west-1:123456789012:key/…: an alias is not enough."
  }
}

variable "consistency" {
  description = "`strong` creates a global table in which all regions agree on a key (MRSC). It has two `replicas`, or one and a `witness`, beside the table in the provider's region, and no time to live: the scan of a reconciler deletes expired items. It cannot be changed later. Default: a table in one region."
  type        = string
  default     = null

  validation {
    condition     = var.consistency == null || var.consistency == "strong"
    error_message = "The consistency is \"strong\", or null for a table in one region."
  }
}

variable "replicas" {
  description = "The other regions of a table with strong consistency, and the ARN of a customer managed key in each if kms_key_arn is set, such as `{ eu-west-1 = {} }`."
  type        = map(object({ kms_key_arn = optional(string) }))
  default     = {}
}

variable "witness" {
  description = "The third region of a table with strong consistency and one replica. It has no table, and no function can use it."
  type        = string
  default     = null
}

variable "keep_large_results_apart" {
  description = "Creates a second table, for results above 4 KB, so that the scan of a reconciler does not read them."
  type        = bool
  default     = false
}

variable "point_in_time_recovery" {
  description = "Enables backups of the last 35 days."
  type        = bool
  default     = true
}

variable "deletion_protection" {
  description = "Protects the table from deletion, by `terraform destroy` too. A new table runs every key again."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of the table."
  type        = map(string)
  default     = {}
}
