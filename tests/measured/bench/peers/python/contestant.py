# SPDX-License-Identifier: Apache-2.0
"""Powertools for AWS Lambda (Python) as a contestant: see measure.go.

With SDK_ONLY set it only creates a client of the SDK, for the comparison of starts.
"""

import json
import os
import resource
import secrets
import sys
import time

import boto3
from botocore.config import Config

client = boto3.client(
    "dynamodb",
    config=Config(max_pool_connections=64),  # with the default of 10, 64 callers would open new connections
)


def answer(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if os.environ.get("SDK_ONLY"):
    answer({"ready": True})
    sys.exit()

from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from threading import Lock  # noqa: E402

from aws_lambda_powertools.utilities.batch import (  # noqa: E402
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.idempotency import (  # noqa: E402
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (  # noqa: E402
    IdempotencyAlreadyInProgressError,
)

store = DynamoDBPersistenceLayer(table_name=os.environ["TABLE"], key_attr="pk", boto3_client=client)
options = {"event_key_jmespath": "id", "expires_after_seconds": 24 * 60 * 60}
if os.environ.get("VALIDATE"):
    options["payload_validation_jmespath"] = "amount"
config = IdempotencyConfig(**options)
results = {}
counting = Lock()
state = {"runs": 0, "during": None}


class Context:
    """The context of an invocation, as far as Powertools reads it."""

    function_name = "charge"
    function_version = "$LATEST"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:charge"
    aws_request_id = "5d1f0c0a-2f1c-4a52-8c3e-0f2d6a3c9d11"

    def __init__(self, milliseconds=30_000):
        self.end = time.monotonic() + milliseconds / 1000

    def get_remaining_time_in_millis(self):
        return int(max(0, self.end - time.monotonic()) * 1000)


def handle(event):
    with counting:
        state["runs"] += 1
    if state["during"]:
        state["during"](event)
    return results[event["size"]]


@idempotent(config=config, persistence_store=store)
def handler(event, context):
    return handle(event)


@idempotent_function(data_keyword_argument="charge", config=config, persistence_store=store)
def handle_message(*, charge):
    return handle(charge)


processor = BatchProcessor(event_type=EventType.SQS)


def record_handler(record):
    handle_message(charge=record.json_body)


def batch_handler(event, context):
    config.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=record_handler, processor=processor, context=context)


def measure(work):
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter_ns()
    work()
    wall, after = time.perf_counter_ns() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": int(cpu * 1e9)}


# The size of a request without padding, in bytes of JSON.
EMPTY = len('{"id":"","amount":4200,"size":"small","steps":0,"pad":""}') + 26


def fresh(size="small", body=0):
    pad = "x" * max(0, body - EMPTY)
    return {"id": secrets.token_hex(13), "amount": 4200, "size": size, "steps": 0, "pad": pad}


def do(request):
    if handler(request, Context()) != results[request["size"]]:
        raise SystemExit("a request was not answered with the result")


def refused(request):
    try:
        handler(request, Context())
    except IdempotencyAlreadyInProgressError:
        return
    raise SystemExit("a request in progress was not refused")


def either(request):
    try:
        handler(request, Context())
    except IdempotencyAlreadyInProgressError:
        pass


def repeat(n, call, flight=1):
    if flight == 1:
        for _ in range(n):
            call()
        return
    parts = [threads.submit(repeat, (n + flight - 1 - i) // flight, call) for i in range(flight)]
    for part in parts:
        part.result()


def message(request):
    return {
        "messageId": request["id"],
        "receiptHandle": "handle",
        "body": json.dumps(request),
        "attributes": {},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:charges",
        "awsRegion": "us-east-1",
    }


def batch():
    event = {"Records": [message(fresh()) for _ in range(10)]}
    if batch_handler(event, Context())["batchItemFailures"]:
        raise SystemExit("messages failed")


threads = ThreadPoolExecutor(64)


def callers():
    request = fresh()
    for future in [threads.submit(either, request) for _ in range(64)]:
        future.result()


def work(command):
    name, n, size, body, flight = (command[key] for key in ("work", "n", "result", "body", "flight"))
    state["runs"], want = 0, n
    if name == "first":
        took = measure(lambda: repeat(n, lambda: do(fresh(size, body)), flight))
    elif name == "replay":
        request, want = fresh(size, body), 1
        do(request)
        took = measure(lambda: repeat(n, lambda: do(request), flight))
    elif name == "in-progress":
        found, want = {}, 1

        def during(event):
            found.update(measure(lambda: repeat(n, lambda: refused(event))))

        state["during"] = during
        do(fresh())
        state["during"], took = None, found
    elif name == "64-callers":
        took = measure(lambda: repeat(n, callers))
    elif name == "batch-10":
        took, want = measure(lambda: repeat(n, batch)), 10 * n
    else:
        raise SystemExit(f"unknown work {name}")
    if state["runs"] != want:
        raise SystemExit(f"{name}: the handler ran {state['runs']} times, want {want}")
    return took


def one(command):
    request, mode = command["request"], command.get("mode")
    kept = results[request["size"]]
    results[request["size"]] = {**kept, "note": command.get("note", "")}

    def during(_):
        if mode == "fail":
            raise RuntimeError("the handler failed after its effect")
        if mode == "wait":
            answer({"entered": True})
            sys.stdin.readline()

    state.update(runs=0, during=during)
    out = {"note": "", "error": ""}
    try:
        out["note"] = handler(request, Context(command.get("timeout") or 30_000)).get("note", "")
    except IdempotencyAlreadyInProgressError:
        out["error"] = "in progress"
    except Exception as e:
        out["error"] = f"{type(e).__name__}: {e}"
    state["during"], results[request["size"]] = None, kept
    return {**out, "runs": state["runs"]}


def main():
    for size in ("small", "1KB", "20KB", "300KB", "600KB"):
        path = os.path.join(os.environ.get("RESULTS", ""), size + ".json")
        if not os.path.exists(path):
            break  # only a start is measured
        with open(path, encoding="utf-8") as f:
            results[size] = json.load(f)
    answer({"ready": True})
    while line := sys.stdin.readline():
        command = json.loads(line)
        answer(one(command) if command.get("request") else work(command))


main()
