# SPDX-License-Identifier: Apache-2.0

mock_provider "aws" {}

variables {
  table = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/records" }
  role  = "charge"
  may   = "handler"

  operations = ["*"]
}

run "a_handler_does_not_list_or_delete" {
  command = plan

  assert {
    condition     = length(regexall("Query|Scan|Delete|Describe|Update", output.policy)) == 0
    error_message = "The policy is ${output.policy}"
  }
}

run "a_handler_of_operations" {
  command = plan

  variables {
    operations = ["POST /charges", "GET /*", "a?"]
  }

  assert {
    condition     = join(" ", jsondecode(output.policy).Statement[0].Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]) == "POST /charges#??????????????????????????????????????????? GET /$${*}#??????????????????????????????????????????? a$${?}#??????????????????????????????????????????? #open"
    error_message = "The policy is ${output.policy}"
  }
}

run "a_key" {
  command = plan

  variables {
    table = {
      arn         = "arn:aws:dynamodb:eu-west-1:123456789012:table/records"
      kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/4f1c"
    }
  }

  assert {
    condition     = jsondecode(output.policy).Statement[2].Condition.StringEquals["kms:ViaService"] == "dynamodb.eu-west-1.amazonaws.com"
    error_message = "The policy is ${output.policy}"
  }
}

run "a_table_with_other_items" {
  command = plan

  variables {
    table      = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/shop", prefix = "O*CE#" }
    operations = ["charge"]
  }

  assert {
    condition     = join(" ", flatten([for s in jsondecode(output.policy).Statement : s.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]])) == "O$${*}CE#charge#??????????????????????????????????????????? O$${*}CE##open O$${*}CE#charge#???????????????????????????????????????????#*"
    error_message = "The policy is ${output.policy}"
  }
}

run "a_reconciler_without_scans" {
  command = plan

  variables {
    may        = "reconciler"
    operations = null
    scans      = false
  }

  assert {
    condition     = length(regexall("Scan|#scan", output.policy)) == 0
    error_message = "The policy is ${output.policy}"
  }
}

run "a_name_of_the_table" {
  command = plan

  assert {
    condition     = aws_iam_role_policy.access.name_prefix == "once-handler-records-"
    error_message = "The name begins with ${aws_iam_role_policy.access.name_prefix}"
  }
}

run "a_long_name_of_the_table" {
  command = plan

  variables {
    table = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/${join("", [for i in range(255) : "r"])}" }
  }

  assert {
    condition     = length(aws_iam_role_policy.access.name_prefix) == 102
    error_message = "IAM refuses a name of more than 128 characters, and the provider adds 26."
  }
}

run "nothing_else_may_be_done" {
  command = plan

  variables {
    may        = "everything"
    operations = null
  }

  expect_failures = [var.may]
}

run "no_operation" {
  command = plan

  variables {
    operations = []
  }

  expect_failures = [var.operations]
}

run "a_pattern_of_record_ids" {
  command = plan

  variables {
    operations = ["POST /charges#*"]
  }

  expect_failures = [var.operations]
}

run "a_method_in_small_letters" {
  command = plan

  variables {
    operations = ["post /charges"]
  }

  expect_failures = [var.operations]
}

run "an_operator_of_one_operation" {
  command = plan

  variables {
    may        = "operator"
    operations = ["POST /charges"]
  }

  expect_failures = [aws_iam_role_policy.access]
}

run "a_handler_without_operations" {
  command = plan

  variables {
    operations = null
  }

  expect_failures = [aws_iam_role_policy.access]
}

run "a_reconciler_of_a_strong_table_deletes" {
  command = plan

  variables {
    table      = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/records", consistency = "strong" }
    may        = "reconciler"
    operations = null
  }

  assert {
    condition     = length(regexall("dynamodb:DeleteItem", output.policy)) == 1
    error_message = "The policy is ${output.policy}"
  }
}

run "a_strong_table_without_scans" {
  command = plan

  variables {
    table      = { arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/records", consistency = "strong" }
    may        = "reconciler"
    operations = null
    scans      = false
  }

  expect_failures = [aws_iam_role_policy.access]
}
