"""Tests functions in the LocalStack at LOCALSTACK_ENDPOINT."""

import io
import json
import os
import tempfile
import unittest
import urllib.parse
import urllib.request
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from tests import PATIENCE
from tests.test_environment import ends, eventually

BOOTSTRAP = Path(__file__).with_name("bootstrap")


def client(service):
    return boto3.client(
        service, endpoint_url=os.environ["LOCALSTACK_ENDPOINT"], region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=PATIENCE),
    )


def archive(name="bootstrap"):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as z:
        z.write(BOOTSTRAP, name)
    return data.getvalue()


class TestLocalStack(unittest.TestCase):
    def create(self, code=None, runtime="provided.al2023", timeout=PATIENCE, **env):
        name = "test-" + uuid.uuid4().hex[:12]
        self.lambda_ = client("lambda")
        self.lambda_.create_function(
            FunctionName=name, Runtime=runtime, Handler="bootstrap", Timeout=timeout,
            Role="arn:aws:iam::000000000000:role/test", Code={"ZipFile": code or archive()},
            Environment={"Variables": env},
        )
        return name

    def created(self, **env):
        """Like create, for a function that can run. LocalStack cannot delete the others."""
        name = self.create(**env)
        self.addCleanup(self.lambda_.delete_function, FunctionName=name)
        return name

    def invoke(self, name, do="", **event):
        event["do"] = do
        out = self.lambda_.invoke(FunctionName=name, Payload=json.dumps(event))
        return out.get("FunctionError"), json.loads(out["Payload"].read())

    def test_invocations_and_their_environment(self):
        name = self.created(TABLE="t")
        error, answer = self.invoke(name, "", text="ü")
        self.assertIsNone(error, answer)
        env = answer["env"]
        self.assertEqual("ü", answer["event"]["text"])
        self.assertEqual(("t", name, "128", "$LATEST"), tuple(env[k] for k in (
            "TABLE", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_VERSION")))
        self.assertTrue(env["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:"))
        self.assertIn(f":function:{name}", answer["arn"])
        self.assertEqual([], [k for k in env if k.startswith("LOCALSTACK_RUNTIME")])

    def test_a_time_out_kills(self):
        name = self.created(timeout=3)
        _, first = self.invoke(name)
        error, answer = self.invoke(name, "hang")
        self.assertEqual("Unhandled", error)
        self.assertIn("Task timed out after 3.00 seconds", answer["errorMessage"])
        self.assertTrue(ends(first["pid"]))

    def test_crashes_and_init_errors_are_told(self):
        error, answer = self.invoke(self.created(), "exit", status=2)
        self.assertEqual(("Unhandled", "Runtime.ExitError"), (error, answer["errorType"]))
        error, answer = self.invoke(self.created(MODE="init error"))
        self.assertEqual(("Unhandled", "no table"), (error, answer["errorMessage"]))

    def test_logs_reach_cloudwatch(self):
        name = self.created(MODE="loud")
        self.invoke(name, "exit", status=1)
        logs, text = client("logs"), ""

        def reported():
            nonlocal text
            try:
                found = logs.filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
            except logs.exceptions.ResourceNotFoundException:
                return False
            text = "".join(e["message"] for e in found)
            return "REPORT" in text

        eventually(reported)  # LocalStack writes logs in the background
        for line in ("START RequestId", "starting loud", "working on exit", "END RequestId", "REPORT RequestId"):
            self.assertIn(line, text)

    def test_a_function_that_cannot_run_is_refused_with_the_reason(self):
        for reason, arguments in (
            ("only zip archives for provided.al2023", {"runtime": "python3.12"}),
            ("has no bootstrap at the top", {"code": archive("lib/bootstrap")}),
        ):
            name = self.create(**arguments)
            state = self.lambda_.get_function_configuration(FunctionName=name)
            self.assertEqual("Failed", state["State"], state)
            self.assertIn(reason, state["StateReason"])
            with self.assertRaises(ClientError):
                self.invoke(name)

    def at_once(self, name):
        """Invokes a function three times at once and returns the ids of the processes."""
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda i: self.invoke(name, meet=(folder, 3), number=i), range(3)))
        self.assertEqual([(None, i) for i in range(3)], [(error, a["event"]["number"]) for error, a in answers])
        return {a["pid"] for _, a in answers}

    def test_invocations_at_once(self):
        self.assertEqual(3, len(self.at_once(self.created())))
        name = self.created(ONCE_EXECUTOR_CONCURRENCY="3")
        self.assertEqual(1, len(self.at_once(name)))
        self.lambda_.update_function_code(FunctionName=name, ZipFile=archive())
        self.lambda_.get_waiter("function_updated_v2").wait(
            FunctionName=name, WaiterConfig={"Delay": 1, "MaxAttempts": PATIENCE})
        self.assertEqual(1, len(self.at_once(name)))

    def test_the_function_url(self):
        name = self.created()
        url = self.lambda_.create_function_url_config(FunctionName=name, AuthType="NONE")["FunctionUrl"]
        parts = urllib.parse.urlsplit(url)
        address = urllib.parse.urlsplit(os.environ["LOCALSTACK_ENDPOINT"])
        request = urllib.request.Request(f"http://{address.netloc}/charges?a=b", b"{}", {"Host": parts.netloc})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            event = json.load(response)["event"]
        self.assertEqual(("2.0", "POST", "/charges"), (
            event["version"], event["requestContext"]["http"]["method"], event["rawPath"]))


if __name__ == "__main__":
    unittest.main()
