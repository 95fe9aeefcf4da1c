"""The state of one process: its invocations and its answers."""

import threading
import time
from collections import deque
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
    logged: str = ""  # what Lambda writes to the log about a run that it ended


class Reply(Enum):
    """How a message of the process is answered."""

    ACCEPTED = auto()
    UNKNOWN_ID = auto()  # the id of no invocation that the process has
    TOO_LATE = auto()  # already answered, or timed out


class Exited(Exception):
    """The process ended. The text describes how."""


class InitFailed(Exception):
    """The process reported that it cannot start."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload)
        self.payload = payload


class Session:
    """Connects the environment, which runs invocations, with the Runtime API,
    through which the process gets invocations and answers them. Safe for use by
    several threads. The environment decides how many invocations run at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = False  # the process has asked for an invocation: init is over
        self._init_error: bytes | None = None
        self._offered: deque[Invocation] = deque()  # the process does not have them yet
        self._given: dict[str, Invocation] = {}  # the process has them, by request id
        self._answers: dict[str, Answer] = {}  # to those in _given
        self._over: set[str] = set()  # of _given: run has returned
        self._ended: str | None = None

    # --- the environment's side

    def wait_ready(self, deadline: float) -> bool:
        """Waits until init is over. Returns False if it is not over at the deadline."""
        with self._changed:
            self._wait(lambda: self._asked or self._init_error is not None, deadline)
            if self._init_error is not None:
                raise InitFailed(self._init_error)
            return self._asked

    def run(self, invocation: Invocation) -> Answer | None:
        """Offers the invocation and waits for its answer until its deadline.
        Returns None if there is no answer in time."""
        with self._changed:
            self._offered.append(invocation)
            self._changed.notify_all()
            try:
                self._wait(lambda: self._answer_to(invocation) is not None, invocation.deadline)
                return self._answer_to(invocation)
            finally:
                if self.was_given(invocation):
                    self._over.add(invocation.request_id)
                else:
                    self._offered.remove(invocation)

    def was_given(self, invocation: Invocation) -> bool:
        """Returns whether the process got the invocation."""
        with self._changed:
            return self._given.get(invocation.request_id) is invocation

    def end(self, reason: str) -> None:
        """Records that the process has ended."""
        with self._changed:
            self._ended = reason
            self._changed.notify_all()

    # --- the side of the process

    def next(self) -> Invocation | None:
        """Waits for an invocation. Returns None if the process has ended."""
        with self._changed:
            self._asked = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._offered or self._ended is not None)
            if self._ended is not None:
                return None
            for request_id in self._over:
                del self._given[request_id]
                self._answers.pop(request_id, None)
            self._over.clear()
            invocation = self._offered.popleft()
            self._given[invocation.request_id] = invocation
            return invocation

    def answer(self, request_id: str, answer: Answer) -> Reply:
        with self._changed:
            if request_id not in self._given:
                return Reply.UNKNOWN_ID
            if request_id in self._answers or request_id in self._over:
                return Reply.TOO_LATE
            self._answers[request_id] = answer
            self._changed.notify_all()
            return Reply.ACCEPTED

    def fail_init(self, payload: bytes) -> Reply:
        with self._changed:
            if self._asked or self._init_error is not None:
                return Reply.TOO_LATE
            self._init_error = payload
            self._changed.notify_all()
            return Reply.ACCEPTED

    def _answer_to(self, invocation: Invocation) -> Answer | None:
        return self._answers.get(invocation.request_id) if self.was_given(invocation) else None

    def _wait(self, come: Callable[[], bool], deadline: float) -> None:
        """Waits until come() is true, the deadline has passed, or the process has
        ended. Raises Exited if the process ended and come() is not true."""
        self._changed.wait_for(lambda: come() or self._ended is not None, deadline - time.time())
        if self._ended is not None and not come():
            raise Exited(self._ended)
