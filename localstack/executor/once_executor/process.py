"""A process and everything it starts."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path


class Process:
    """A program that runs in a process group of its own.

    When it ends, for whatever reason, what is left of its group is killed, and
    then on_exit is called with the reason, in a thread of its own.
    """

    def __init__(
        self, program: Path, env: Mapping[str, str], output: int, on_exit: Callable[[str], None]
    ) -> None:
        self._popen = subprocess.Popen(
            [str(program)],
            cwd=program.parent,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self._lock = threading.Lock()  # holds the number of the group while somebody uses it
        self._reaped = False
        self._watcher = threading.Thread(target=self._watch, args=(on_exit,), daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def peak_memory(self) -> int:
        """Returns the most memory that the program itself has used, in MB."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0  # it has ended
        peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        return int(peak[1]) // 1024 if peak else 0

    def kill(self) -> None:
        """Ends the whole group at once; on_exit has been called when it returns."""
        with self._lock:
            if not self._reaped:
                os.killpg(self.pid, signal.SIGKILL)
        self._watcher.join()

    def _watch(self, on_exit: Callable[[str], None]) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            # Before the leader is reaped nobody else can have its group's number.
            os.killpg(self.pid, signal.SIGKILL)
            code = self._popen.wait()
            self._reaped = True
        on_exit(reason(code))


def reason(code: int) -> str:
    """Says how a process ended, as Lambda does."""
    if code < 0:
        return f"signal: {signal.strsignal(-code) or -code}".lower()
    return f"exit status {code}"
