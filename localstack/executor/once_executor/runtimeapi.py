"""The Lambda Runtime API over HTTP.

AWS Lambda developer guide, "Using the Lambda runtime API for custom runtimes".
"""

import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from once_executor.session import Answer, Invocation, Reply, Session

VERSION = "2018-06-01"
MAX_RESPONSE = 6_291_556  # bytes: the limit in Lambda's error message


class RuntimeAPI:
    """Serves one session at a time, on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """The value of AWS_LAMBDA_RUNTIME_API for a runtime."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def serve(self, session: Session) -> None:
        self._server.session = session

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    session: Session

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # expected: processes die and are killed
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.session = self.server.session  # a connection belongs to one process

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != f"/{VERSION}/runtime/invocation/next":
            return self._refuse(HTTPStatus.NOT_FOUND, "NotFound", f"unknown path: GET {self.path}")
        invocation = self.session.next()
        if invocation is None:
            self.close_connection = True  # the process that asked is dead
            return
        self._send(HTTPStatus.OK, invocation.payload, _headers(invocation))

    def do_POST(self) -> None:
        body = self._body()
        match self.path.split("/")[1:]:
            case [version, "runtime", "invocation", request_id, "response"] if version == VERSION:
                self._answer(request_id, body)
            case [version, "runtime", "invocation", request_id, "error"] if version == VERSION:
                self._reply(self.session.answer(request_id, Answer(body, is_error=True)))
            case [version, "runtime", "init", "error"] if version == VERSION:
                self._reply(self.session.fail_init(body))
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "NotFound", f"unknown path: POST {self.path}")

    def _answer(self, request_id: str, body: bytes) -> None:
        if len(body) > MAX_RESPONSE:
            text = f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE} bytes)."
            error = error_payload("Function.ResponseSizeTooLarge", text)
            self.session.answer(request_id, Answer(error, is_error=True))
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", text)
        failed = self._trailers.get("lambda-runtime-function-error-type")
        if failed is not None:  # the stream broke off: its data is not a response
            body = error_payload(failed, "the response broke off")
        self._reply(self.session.answer(request_id, Answer(body, is_error=failed is not None)))

    def _reply(self, reply: Reply) -> None:
        match reply:
            case Reply.ACCEPTED:
                self._send(HTTPStatus.ACCEPTED, b'{"status":"OK"}', {})
            case Reply.UNKNOWN_ID:
                self._refuse(HTTPStatus.BAD_REQUEST, "InvalidRequestID", "Invalid request ID")
            case Reply.TOO_LATE:
                self._refuse(HTTPStatus.FORBIDDEN, "InvalidStateTransition", "Transition not allowed")

    def _refuse(self, status: HTTPStatus, kind: str, text: str) -> None:
        self._send(status, error_payload(kind, text), {})

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        self._trailers: dict[str, str] = {}
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while line := self.rfile.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            self._trailers[name.strip().lower()] = value.strip()
        return bytes(body)


def _headers(invocation: Invocation) -> dict[str, str]:
    return {
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(int(invocation.deadline * 1000)),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
        "Lambda-Runtime-Trace-Id": invocation.trace_id,
    }


def error_payload(kind: str, message: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()
