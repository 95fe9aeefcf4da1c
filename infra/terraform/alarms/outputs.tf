# SPDX-License-Identifier: Apache-2.0

output "alarm_arns" {
  description = "The ARNs of the alarms by urgency: page, ticket, look."
  value       = local.arns
}
