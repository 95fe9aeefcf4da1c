"""LocalStack's interface."""

import stat
from pathlib import Path

from localstack import config
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import (
    LambdaRuntimeException,
    RuntimeExecutor,
)

from once_executor.environment import Environment, Function


class ProcessExecutor(RuntimeExecutor):  # type: ignore[misc]
    """One execution environment of one function version."""

    _environment: Environment | None = None

    def start(self, env_vars: dict[str, object]) -> None:
        settings = self.function_version.config
        function = Function(
            code=_code(self.function_version),
            version=self.function_version.id.qualifier,
            timeout=settings.timeout,
            memory=settings.memory_size,
        )
        # Variables for LocalStack's own runtime do not exist on AWS.
        env = {k: str(v) for k, v in env_vars.items() if not k.startswith("LOCALSTACK_RUNTIME_")}
        self._environment = Environment(function, env)
        self._environment.start()

    def stop(self) -> None:
        if self._environment is not None:
            self._environment.stop()
            self._environment = None

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


def _code(function_version: FunctionVersion) -> Path:
    return Path(function_version.config.code.get_unzipped_code_location())
