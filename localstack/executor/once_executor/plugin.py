"""The entry point by which LocalStack finds the executor: see pyproject.toml."""

from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin


class ProcessExecutorPlugin(RuntimeExecutorPlugin):  # type: ignore[misc]
    name = "process"

    def load(self, *args: object, **kwargs: object) -> type:
        from once_executor.executor import ProcessExecutor

        return ProcessExecutor
