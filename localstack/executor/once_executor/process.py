"""A process with all its children, and what it prints."""

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path


class Process:
    """A program that runs in a new process group.

    When the program ends, for any reason, the rest of its group is killed. Then
    on_exit is called with the reason, in a separate thread.
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
        self._lock = threading.Lock()  # while held, the id of the group remains valid
        self._reaped = False
        self._watcher = threading.Thread(target=self._watch, args=(on_exit,), daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def peak_memory(self) -> int:
        """Returns the peak memory of the program itself, in MB."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0  # it has ended
        peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        return int(peak[1]) // 1024 if peak else 0

    def kill(self) -> None:
        """Kills the whole group. on_exit has been called when kill returns."""
        with self._lock:
            if not self._reaped:
                os.killpg(self.pid, signal.SIGKILL)
        self._watcher.join()

    def _watch(self, on_exit: Callable[[str], None]) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            # Until the leader is reaped, no other group can have the same id.
            os.killpg(self.pid, signal.SIGKILL)
            code = self._popen.wait()
            self._reaped = True
        on_exit(reason(code))


def reason(code: int) -> str:
    """Describes how a process ended, in the words of Lambda."""
    if code < 0:
        return f"signal: {signal.strsignal(-code) or -code}".lower()
    return f"exit status {code}"


class Output:
    """A file that a process prints to.

    It is not a pipe: output that was printed before an answer was sent is in the
    file when the answer arrives, and no thread has to read continuously.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()
        self._taken = 0  # bytes
        self.descriptor = os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_WRONLY | os.O_APPEND)

    def take(self) -> str:
        """Returns what was printed since the last call."""
        size = os.fstat(self._file.fileno()).st_size
        text = os.pread(self._file.fileno(), size, self._taken)
        self._taken += len(text)
        return text.decode(errors="replace")

    def close(self) -> None:
        os.close(self.descriptor)
        self._file.close()
