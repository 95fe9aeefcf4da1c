"""Runs cfn-lint on templates, and checkov on them and on the Terraform modules.

Each kind of finding that is accepted has a reason. A reason without a finding is an error, too.
"""

import json
import os
import pathlib
import subprocess
import sys

ACCEPTED = {
    "W3005": "The CDK adds a dependency on the role of a function that CloudFormation knows already.",
    "CKV_AWS_26": "The topics carry names of alarms. Encrypted, they would need a key that CloudWatch may use.",
    "CKV_AWS_27": "The queues are encrypted with the key of SQS (SqsManagedSseEnabled), which this check does not accept.",
    "CKV_AWS_73": "The example's API has access logs. Tracing is a choice with its own price.",
    "CKV_AWS_115": "Reserved concurrency depends on the quota of an account; the example has none.",
    "CKV_AWS_116": "No function is invoked asynchronously except the reconciler, whose next run does the same work.",
    "CKV_AWS_117": "The functions use no resource of a VPC.",
    "CKV_AWS_119": "A customer managed key is a choice: the property EncryptionKey, the variable kms_key_arn.",
    "CKV_AWS_120": "The API has one method, POST, whose responses must not be cached.",
    "CKV_AWS_158": "The logs contain no key, payload or secret, and CloudWatch encrypts them.",
    "CKV_AWS_173": "The variables are names and addresses, and Lambda encrypts them.",
}
MODULES = ["infra/terraform", "examples/charge-lambda/stack/terraform"]
REFUSED = "tools/templates/refused.yaml"


def run(*args):
    env = {**os.environ, "CHECKOV_RUN_SCA_PACKAGE_SCAN": "false", "LOG_LEVEL": "ERROR", "BC_SKIP_MAPPING": "TRUE"}
    done = subprocess.run(args, stdout=subprocess.PIPE, text=True, env=env, check=False)
    documents, rest = [], done.stdout.strip()
    while rest:  # checkov prints a document for each directory
        try:
            document, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            sys.exit(f"{args[0]} exited with {done.returncode}: {rest}")
        documents += document if isinstance(document, list) else [document]
        rest = rest[end:].strip()
    return documents


def main():
    programs, templates = pathlib.Path(sys.argv[1]), sys.argv[2:]
    found, passed = {}, 0
    for m in run(programs / "cfn-lint", "--format", "json", *templates):
        found.setdefault(m["Rule"]["Id"], []).append(f"{m['Filename']}: {m['Message']}")
    if not {m["Rule"]["Id"] for m in run(programs / "cfn-lint", "--format", "json", REFUSED)} == {"E0000"}:
        sys.exit(f"cfn-lint accepts {REFUSED}, or refuses it for another reason")
    checkov = (programs / "checkov", "--output", "json", "--quiet", "--skip-download")
    for arguments in (
        ["--framework", "cloudformation", *(a for t in templates for a in ("--file", t))],
        ["--framework", "terraform", *(a for m in MODULES for a in ("--directory", m))],
    ):
        for report in run(*checkov, *arguments):
            passed += report["summary"]["passed"]
            if report["summary"]["parsing_errors"]:
                sys.exit(f"checkov cannot read {report['results']['parsing_errors']}")
            for check in report["results"]["failed_checks"]:
                found.setdefault(check["check_id"], []).append(f"{check['resource']}: {check['check_name']}")
    for kind in sorted(found.keys() - ACCEPTED):
        print(f"{kind}\n  " + "\n  ".join(found[kind]), file=sys.stderr)
    for kind in sorted(ACCEPTED.keys() - found):
        print(f"{kind} is accepted in check.py, and not found: remove it", file=sys.stderr)
    if found.keys() != ACCEPTED.keys() or passed < 200:
        sys.exit(f"{passed} checks passed")
    print(f"cfn-lint and checkov: {passed} checks passed, {sum(map(len, found.values()))} findings accepted")


if __name__ == "__main__":
    main()
