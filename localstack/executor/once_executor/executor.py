"""LocalStack's interface."""

import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from localstack import config
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import (
    LambdaRuntimeException,
    RuntimeExecutor,
)

from once_executor.environment import Environment, Function


CONCURRENCY = "ONCE_EXECUTOR_CONCURRENCY"


class ProcessExecutor(RuntimeExecutor):  # type: ignore[misc]
    """One execution environment of one function version.

    LocalStack gives it one invocation at a time. Executors of a version whose
    function has the variable ONCE_EXECUTOR_CONCURRENCY share a process, which so
    gets that many invocations at once."""

    _shared: ClassVar[dict[tuple[str, str], list["_Shared"]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()  # guards _shared

    _environment: Environment | None = None

    def start(self, env_vars: dict[str, object]) -> None:
        settings = self.function_version.config
        # Variables for LocalStack's own runtime do not exist on AWS.
        env = {k: str(v) for k, v in env_vars.items() if not k.startswith("LOCALSTACK_RUNTIME_")}
        function = Function(
            code=_code(self.function_version),
            version=self.function_version.id.qualifier,
            timeout=settings.timeout,
            memory=settings.memory_size,
            concurrency=int(env.get(CONCURRENCY, 1)),
        )
        with self._lock:
            shared = self._shared.setdefault(self._version(), [])
            for candidate in shared:
                if candidate.users < function.concurrency:
                    candidate.users += 1
                    self._environment = candidate.environment
                    return
            self._environment = Environment(function, env)
            shared.append(_Shared(self._environment))
        self._environment.start()

    def stop(self) -> None:
        environment, self._environment = self._environment, None
        with self._lock:
            shared = self._shared.get(self._version(), [])
            for candidate in shared:
                if candidate.environment is environment:
                    candidate.users -= 1
                    if candidate.users > 0:
                        return
                    shared.remove(candidate)
                    break
            if not shared:
                self._shared.pop(self._version(), None)
        if environment is not None:
            environment.stop()

    def _version(self) -> tuple[str, str]:
        return self.function_version.id.qualified_arn(), self.function_version.config.revision_id

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        if self._environment is None:
            raise LambdaRuntimeException(f"execution environment {self.id} is not running")
        result = self._environment.invoke(
            request_id=payload["invoke-id"],
            payload=payload["payload"].encode(),
            function_arn=payload["invoked-function-arn"],
            trace_id=payload["trace-id"],
        )
        return InvocationResult(
            request_id=payload["invoke-id"],
            payload=result.answer.payload,
            is_error=result.answer.is_error,
            logs=result.logs,
        )

    def get_logs(self) -> str:
        return self._environment.take_logs() if self._environment else ""

    def get_address(self) -> str:
        return "127.0.0.1"

    def get_endpoint_from_executor(self) -> str:
        return "127.0.0.1"

    def get_runtime_endpoint(self) -> str:
        return f"http://127.0.0.1:{config.GATEWAY_LISTEN[0].port}"

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        settings = function_version.config
        if settings.package_type != "Zip" or not (settings.runtime or "").startswith("provided"):
            raise LambdaRuntimeException(
                f"{function_version.id.function_name} has package type {settings.package_type}"
                f" and runtime {settings.runtime}: without Docker only zip archives for provided.al2023"
                " that contain a bootstrap can run"
            )
        settings.code.prepare_for_execution()
        bootstrap = _code(function_version) / "bootstrap"
        if not bootstrap.is_file():
            raise LambdaRuntimeException(
                f"{function_version.id.function_name} has no bootstrap at the top of its zip archive"
            )
        bootstrap.chmod(bootstrap.stat().st_mode | stat.S_IXUSR)

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        pass  # the code belongs to LocalStack

    @classmethod
    def validate_environment(cls) -> bool:
        return True


@dataclass
class _Shared:
    """An environment, and how many executors use it."""

    environment: Environment
    users: int = 1


def _code(function_version: FunctionVersion) -> Path:
    return Path(function_version.config.code.get_unzipped_code_location())
