# SPDX-License-Identifier: Apache-2.0

variable "of" {
  description = "The outputs `environment` of the modules `table` and `reconciler`, and other variables of the function."
  type        = list(map(string))

  validation {
    condition     = length(distinct(flatten([for e in var.of : [for name, value in e : "${name}=${value}"]]))) == length(distinct(flatten([for e in var.of : keys(e)])))
    error_message = "A variable has two values, so the function would use one of two tables: set `store` of the module of one table, or use a function for each."
  }
}
