# SPDX-License-Identifier: Apache-2.0

output "variables" {
  description = "The variables of the function, for its `environment`."
  value       = merge(var.of...)
}
