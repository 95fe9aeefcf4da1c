# SPDX-License-Identifier: Apache-2.0

# The services of infra/watch_test.go: one with a reconciler, and one without. A test compares the two.

variable "function" {
  type    = object({ arn = string, function_name = string, timeout = number })
  default = { arn = "aws_lambda_function.reconcile.arn", function_name = "reconcile", timeout = 60 }
}

module "records" {
  source = "../../table"
  name   = "records"
}

module "handler" {
  source     = "../../access"
  table      = module.records
  role       = "charge"
  may        = "handler"
  operations = ["charge"]
}

module "handler_of_operations" {
  source     = "../../access"
  table      = { arn = module.records.arn, kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/1" }
  role       = "charge"
  may        = "handler"
  operations = ["charge", "GET /*"]
}

module "viewer" {
  source = "../../access"
  table  = module.records
  role   = "viewer"
  may    = "viewer"
}

module "operator" {
  source = "../../access"
  table  = module.records
  role   = "operator"
  may    = "operator"
}

module "apart" {
  source                   = "../../table"
  name                     = "apart"
  keep_large_results_apart = true
}

module "apart_access" {
  for_each   = toset(["handler", "reconciler", "viewer", "operator"])
  source     = "../../access"
  table      = module.apart
  role       = each.key
  may        = each.key
  operations = each.key == "handler" ? ["charge"] : null
}

module "everywhere" {
  source = "../../table"

  name        = "everywhere"
  consistency = "strong"
  replicas    = { eu-central-1 = {} }
  witness     = "eu-west-3"
}

module "everywhere_access" {
  for_each   = toset(["handler", "reconciler", "viewer", "operator"])
  source     = "../../access"
  table      = module.everywhere
  role       = each.key
  may        = each.key
  operations = each.key == "handler" ? ["charge"] : null
}

module "frankfurt_access" {
  source = "../../access"

  table      = module.everywhere.replicas["eu-central-1"]
  role       = "charge-frankfurt"
  may        = "handler"
  operations = ["POST /charges"]
}

module "shared_access" {
  for_each   = toset(["handler", "reconciler", "viewer", "operator"])
  source     = "../../access"
  table      = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/shop", prefix = "ONCE#" }
  role       = each.key
  may        = each.key
  operations = each.key == "handler" ? ["charge"] : null
}

module "reconciler" {
  source   = "../../reconciler"
  name     = "reconciler"
  function = var.function
  role     = "reconcile"
  table    = module.records
}

module "orders" {
  source   = "../../queue"
  name     = "orders"
  function = { arn = "aws_lambda_function.orders.arn", timeout = 30 }
  role     = "orders"
}

module "charges" {
  source           = "../../alarms"
  name             = "charges"
  namespace        = "Charges"
  functions        = [{ function_name = "charge-function", timeout = 10 }]
  table            = module.records
  reconciler       = module.reconciler
  page_topic_arn   = "Pager"
  ticket_topic_arn = "Tickets"
  look_topic_arn   = "Looks"
  dashboard_name   = "charges"

  dashboard_operations = ["charge", "refund"]
}

module "order_alarms" {
  source             = "../../alarms"
  name               = "orders"
  namespace          = "Orders"
  operations         = ["order", "return"]
  functions          = [{ function_name = "order-function", timeout = 900 }]
  table              = module.records
  dead_letter_queues = [module.orders.dead_letter_queue.name]
  page_topic_arn     = "Pager"
  ticket_topic_arn   = "Tickets"
}
