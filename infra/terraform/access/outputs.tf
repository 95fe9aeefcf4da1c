# SPDX-License-Identifier: Apache-2.0

output "policy" {
  description = "The policy as JSON."
  value       = local.policy
}
