# SPDX-License-Identifier: Apache-2.0
"""Runs app.handler for each line of standard input, many at a time: see handler.go."""

import json
import sys
import threading
import types
import warnings
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

warnings.simplefilter("ignore")  # the payloads of hashes are not events
lock = threading.Lock()


def answer(**fields):
    with lock:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


released = defaultdict(threading.Event)  # by order


class Killed(BaseException):
    """Ends a run as a kill does: Powertools neither stores nor deletes anything."""


class Failed(Exception):
    """An error before the effect."""


def take_payment(event):
    n = event["n"]
    if event["mode"] == "fail":
        raise Failed
    answer(n=n, effect=True)
    if event["mode"] == "crash":
        raise Killed
    if event["mode"] == "late":
        released[event["orderId"]].wait()
    return {"receipt": n, "amount": event["amount"]}


provider = types.ModuleType("provider")
provider.take_payment = take_payment
sys.modules["provider"] = provider
sys.path.insert(0, sys.argv[1])
import app  # noqa: E402


class Context:
    function_name = "charge"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:charge"
    aws_request_id = "5d1f0c0a-2f1c-4a52-8c3e-0f2d6a3c9d11"

    def get_remaining_time_in_millis(self):
        return 600_000


def run(line):
    event = json.loads(line)
    if event["mode"] == "hash":
        answer(n=event["n"], key=app.store._get_hashed_idempotency_key(data=event))
        return
    if event["mode"] == "release":
        released[event["orderId"]].set()
        answer(n=event["n"])
        return
    try:
        answer(n=event["n"], result=app.handler(event, Context()))
    except BaseException as e:
        answer(n=event["n"], error=type(e).__name__)


app.config.register_lambda_context(Context())
app.store.configure(config=app.config, function_name="app.handler")
answer(n=-1)
with ThreadPoolExecutor(8) as threads:
    for line in sys.stdin:
        threads.submit(run, line)
