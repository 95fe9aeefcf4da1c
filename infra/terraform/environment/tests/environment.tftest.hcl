# SPDX-License-Identifier: Apache-2.0

run "two_tables_with_names" {
  command = plan

  variables {
    of = [{ ONCE_TABLE = "records" }, { ONCE_TABLE_ORDERS = "orders" }, { ONCE_TABLE = "records", SHOP = "shop" }]
  }

  assert {
    condition     = jsonencode(output.variables) == jsonencode({ ONCE_TABLE = "records", ONCE_TABLE_ORDERS = "orders", SHOP = "shop" })
    error_message = "The variables are ${jsonencode(output.variables)}"
  }
}

run "two_tables_without_names" {
  command = plan

  variables {
    of = [{ ONCE_TABLE = "records" }, { ONCE_TABLE = "orders" }]
  }

  expect_failures = [var.of]
}
