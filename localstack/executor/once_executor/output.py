"""The output of a process."""

import os
import tempfile


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
