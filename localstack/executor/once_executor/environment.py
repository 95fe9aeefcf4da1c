"""An execution environment.

AWS Lambda developer guide, "Understanding the Lambda execution environment
lifecycle". Not provided: extensions, layers, memory limits, and the freezing of
a process between two invocations.
"""

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from once_executor.process import Output, Process
from once_executor.runtimeapi import RuntimeAPI, error_payload
from once_executor.session import Answer, Exited, InitFailed, Invocation, Session

MAX_INIT = 10.0  # seconds; an init at the first invocation has the function's time-out instead


@dataclass(frozen=True)
class Function:
    code: Path  # the folder that holds bootstrap
    version: str
    timeout: float  # seconds
    memory: int  # MB
    concurrency: int = 1  # invocations at once; more than one as on Lambda Managed Instances


@dataclass(frozen=True)
class Result:
    answer: Answer
    logs: str


class Environment:
    """Runs the invocations of one function in a process, at most as many at once as
    the function's concurrency. If the process ended or was killed, the next
    invocation starts a new one. A time-out kills the process, except with a
    concurrency above one: then other invocations continue, and so does the one that
    timed out (AWS Lambda developer guide, "Understanding the Lambda Managed
    Instances execution environment")."""

    def __init__(self, function: Function, env: Mapping[str, str]) -> None:
        self._function = function
        self._api = RuntimeAPI()
        self._output = Output()
        self._tmp = tempfile.mkdtemp(prefix="once-lambda-")
        self._env = self._environment(env)
        self._slots = threading.Semaphore(function.concurrency)  # one is held during an invocation
        self._starting = threading.Lock()  # held during init
        self._lock = threading.Lock()  # guards the next fields, and the output
        self._process: Process | None = None
        self._session = Session()  # of the process
        self._stopped = False
        self._init_took: float | None = None  # seconds; None once reported

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        # The function inherits only one variable of this process: the one by which
        # localstack/down finds child processes.
        inherited = {k: v for k, v in os.environ.items() if k == "ONCE_LOCALSTACK_RUN"}
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "en_US.UTF-8", "TMPDIR": self._tmp}
        ours = {
            "AWS_LAMBDA_RUNTIME_API": self._api.address,
            "LAMBDA_TASK_ROOT": str(self._function.code),
        }
        if self._function.concurrency > 1:
            ours["AWS_LAMBDA_MAX_CONCURRENCY"] = str(self._function.concurrency)
        return base | dict(env) | inherited | ours

    def start(self) -> None:
        """Starts the process before the first invocation. A failure is ignored here:
        as on Lambda, the first invocation tries again and returns the error."""
        self._ready("", time.time() + MAX_INIT)

    def invoke(self, request_id: str, payload: bytes, function_arn: str, trace_id: str) -> Result:
        with self._slots:
            began = time.time()
            deadline = began + self._function.timeout
            answer = self._answer(Invocation(request_id, payload, function_arn, trace_id, deadline))
            return Result(answer, self._report(request_id, time.time() - began, answer.logged))

    def take_logs(self) -> str:
        """Returns output that is not part of the logs of an invocation."""
        with self._lock:
            return self._output.take()

    def stop(self) -> None:
        """Kills the process, and with it running invocations. The environment cannot be used again."""
        with self._lock:
            self._stopped = True
            session = self._session
        self._kill(session)
        for _ in range(self._function.concurrency):
            self._slots.acquire()
        self._api.close()
        self._output.close()
        shutil.rmtree(self._tmp, ignore_errors=True)

    def _answer(self, invocation: Invocation) -> Answer:
        while True:
            session = self._ready(invocation.request_id, invocation.deadline)
            if isinstance(session, Answer):
                return session
            try:
                answer = session.run(invocation)
            except Exited as e:
                self._kill(session)
                if not session.was_given(invocation):
                    continue  # the process had ended before it got this invocation
                return _failure(invocation.request_id, "Runtime.ExitError", _exited(e))
            if answer is None:
                if self._function.concurrency == 1:
                    self._kill(session)
                return self._timed_out(invocation.request_id)
            return answer

    def _ready(self, request_id: str, deadline: float) -> Session | Answer:
        """Returns the session of the process. If there is no process, starts one and
        waits until it is ready; returns its failure."""
        with self._starting:
            with self._lock:
                if self._process is not None:
                    return self._session
            return self._initialise(request_id, deadline)

    def _initialise(self, request_id: str, deadline: float) -> Session | Answer:
        began = time.time()
        session = Session()
        self._api.serve(session)
        bootstrap = self._function.code / "bootstrap"
        try:
            with self._lock:
                if self._stopped:
                    return _failure(request_id, "Sandbox.Stopped", "The environment was stopped")
                self._process = Process(bootstrap, self._env, self._output.descriptor, session.end)
                self._session = session
        except OSError as e:  # for example a program for another processor
            text = f"bootstrap cannot be executed on this machine: {e.strerror}"
            return _failure(request_id, "Runtime.InvalidEntrypoint", text)
        try:
            if session.wait_ready(deadline):
                with self._lock:
                    self._init_took = time.time() - began
                return session
            failure = self._timed_out(request_id)
        except InitFailed as e:
            failure = Answer(e.payload, is_error=True)
        except Exited as e:
            failure = _failure(request_id, "Runtime.ExitError", _exited(e))
        self._kill(session)
        return failure

    def _kill(self, session: Session) -> None:
        """Kills the process of the session, if it is the current one."""
        with self._lock:
            if self._session is not session:
                return
            process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _timed_out(self, request_id: str) -> Answer:
        text = f"Task timed out after {self._function.timeout:.2f} seconds"
        return _failure(request_id, "Sandbox.Timedout", text)

    def _report(self, request_id: str, took: float, failure: str) -> str:
        """Returns the log of an invocation, with the lines that Lambda adds."""
        report = [
            f"REPORT RequestId: {request_id}",
            f"Duration: {took * 1000:.2f} ms",
            f"Billed Duration: {math.ceil(took * 1000)} ms",
            f"Memory Size: {self._function.memory} MB",
        ]
        with self._lock:
            if self._process is not None:
                report.append(f"Max Memory Used: {self._process.peak_memory()} MB")
            if self._init_took is not None:
                report.append(f"Init Duration: {self._init_took * 1000:.2f} ms")
                self._init_took = None
            printed = self._output.take()
        if printed and not printed.endswith("\n"):
            printed += "\n"
        return (
            f"START RequestId: {request_id} Version: {self._function.version}\n{printed}{failure}"
            f"END RequestId: {request_id}\n" + "\t".join(report) + "\n"
        )


def _exited(e: Exited) -> str:
    return f"Runtime exited with error: {e}"


def _failure(request_id: str, kind: str, text: str) -> Answer:
    message = f"RequestId: {request_id} Error: {text}"
    return Answer(error_payload(kind, message), is_error=True, logged=f"{message}\n{kind}\n")
