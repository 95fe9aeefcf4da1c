"""The conversation with one process: what it was given and what it said."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True)
class Invocation:
    request_id: str
    payload: bytes
    function_arn: str
    trace_id: str
    deadline: float  # seconds since the epoch


@dataclass(frozen=True)
class Answer:
    payload: bytes
    is_error: bool


class Reply(Enum):
    """What becomes of something that the process said."""

    ACCEPTED = auto()
    UNKNOWN_ID = auto()  # it is about no invocation, or not about this one
    TOO_LATE = auto()  # it was said before


class Exited(Exception):
    """The process ended; the text says how."""


class InitFailed(Exception):
    """The process said that it cannot start."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload)
        self.payload = payload


class Session:
    """Two sides meet here: the environment, which runs one invocation after the
    other, and the Runtime API, through which the process asks and answers.
    Safe for use by several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = False  # for the first invocation: init is over
        self._init_error: bytes | None = None
        self._offered: Invocation | None = None  # nobody has it yet
        self._given: Invocation | None = None  # the process has it
        self._answer: Answer | None = None  # to what was given
        self._ended: str | None = None

    # --- the environment's side

    def wait_ready(self, deadline: float) -> bool:
        """Waits until init is over. False: it took too long."""
        with self._changed:
            self._wait(lambda: self._asked or self._init_error is not None, deadline)
            if self._init_error is not None:
                raise InitFailed(self._init_error)
            return self._asked

    def run(self, invocation: Invocation) -> Answer | None:
        """Hands the invocation over and waits for its answer until its deadline.
        None: there was none in time."""
        with self._changed:
            self._offered = invocation
            self._changed.notify_all()

            def answered() -> bool:
                return self._given is invocation and self._answer is not None

            self._wait(answered, invocation.deadline)
            return self._answer if answered() else None

    def was_given(self, invocation: Invocation) -> bool:
        """Whether the process has got hold of the invocation."""
        with self._changed:
            return self._given is invocation

    def end(self, reason: str) -> None:
        """The process has ended."""
        with self._changed:
            self._ended = reason
            self._changed.notify_all()

    # --- the side of the process

    def next(self) -> Invocation | None:
        """Waits for an invocation. None: there will be none."""
        with self._changed:
            self._asked = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._offered is not None or self._ended is not None)
            if self._ended is not None:
                return None
            self._given, self._offered, self._answer = self._offered, None, None
            return self._given

    def answer(self, request_id: str, answer: Answer) -> Reply:
        with self._changed:
            if self._given is None or self._given.request_id != request_id:
                return Reply.UNKNOWN_ID
            if self._answer is not None:
                return Reply.TOO_LATE
            self._answer = answer
            self._changed.notify_all()
            return Reply.ACCEPTED

    def fail_init(self, payload: bytes) -> Reply:
        with self._changed:
            if self._asked or self._init_error is not None:
                return Reply.TOO_LATE
            self._init_error = payload
            self._changed.notify_all()
            return Reply.ACCEPTED

    def _wait(self, come: Callable[[], bool], deadline: float) -> None:
        """Waits until it has come, or the deadline has, or the process ended,
        which is an error if it has not come before."""
        self._changed.wait_for(lambda: come() or self._ended is not None, deadline - time.time())
        if self._ended is not None and not come():
            raise Exited(self._ended)
