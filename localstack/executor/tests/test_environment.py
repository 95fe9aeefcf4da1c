"""Tests the semantics of Lambda with the bootstrap beside this file."""

import dataclasses
import json
import os
import re
import shutil
import tempfile
import threading
import time
import unittest
from pathlib import Path

import once_executor.environment
from once_executor.environment import Environment, Function
from once_executor.session import Answer, Invocation, Reply, Session
from tests import PATIENCE

once_executor.environment.MAX_INIT = PATIENCE  # a busy machine starts a process late
ARN = "arn:aws:lambda:us-east-1:000000000000:function:test"
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
BOOTSTRAP = Path(__file__).with_name("bootstrap")


def eventually(condition) -> bool:
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] == "Z"  # a zombie: not reaped yet
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends(pid: int) -> bool:
    """Returns whether a process ends: a signal takes effect later."""
    return eventually(lambda: ended(pid))


def limit(environment: Environment, timeout: float) -> None:
    """Changes the time-out of a function, whose process continues."""
    environment._function = dataclasses.replace(environment._function, timeout=timeout)


class TestEnvironment(unittest.TestCase):
    def environment(
        self, timeout: float = PATIENCE, bootstrap: Path = BOOTSTRAP, start: bool = True, concurrency: int = 1, **env: str
    ) -> Environment:
        code = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, code)
        shutil.copy(bootstrap, code / "bootstrap")
        environment = Environment(Function(code, "$LATEST", timeout, 128, concurrency), env)
        self.addCleanup(environment.stop)
        if start:
            environment.start()
        return environment

    def folder(self) -> str:
        """Returns an empty folder, for meet in bootstrap."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def invoke(self, environment, do="", request_id="id-1", **event):
        event["do"] = do
        result = environment.invoke(request_id, json.dumps(event).encode(), ARN, TRACE)
        return result, json.loads(result.answer.payload)

    def succeeds(self, environment, do="", **event):
        result, answer = self.invoke(environment, do, **event)
        self.assertFalse(result.answer.is_error, answer)
        return result, answer

    def fails(self, environment, kind, text, do="", **event):
        result, answer = self.invoke(environment, do, **event)
        self.assertTrue(result.answer.is_error, answer)
        self.assertEqual(kind, answer["errorType"])
        self.assertRegex(answer["errorMessage"], text)
        return result

    def test_an_invocation_carries_what_the_runtime_api_says(self):
        environment = self.environment(timeout=700, TABLE="t")
        began = time.time()
        _, answer = self.succeeds(environment, "", payload="ü")
        self.assertEqual("ü", answer["event"]["payload"])
        self.assertEqual((ARN, TRACE, "t"), (answer["arn"], answer["trace"], answer["env"]["TABLE"]))
        # The header has milliseconds, rounded down.
        self.assertTrue(began + 699.999 <= answer["deadline"] <= time.time() + 700, (began, answer["deadline"]))

    def test_nothing_of_our_environment_is_the_functions(self):
        os.environ["SECRET_OF_THE_HOST"] = "s"
        self.addCleanup(os.environ.pop, "SECRET_OF_THE_HOST")
        _, answer = self.succeeds(self.environment())
        self.assertNotIn("SECRET_OF_THE_HOST", answer["env"])

    def test_one_process_serves_all_invocations(self):
        environment = self.environment()
        pids = {self.succeeds(environment, request_id=f"id-{i}")[1]["pid"] for i in range(5)}
        self.assertEqual(1, len(pids))

    def test_a_time_out_kills_and_the_next_invocation_starts_anew(self):
        environment = self.environment()
        _, first = self.succeeds(environment, "child")
        limit(environment, 2)
        began = time.monotonic()
        result = self.fails(environment, "Sandbox.Timedout", r"^RequestId: id-1 Error: Task timed out after 2.00 seconds$", "hang")
        self.assertGreater(time.monotonic() - began, 1.9)
        self.assertIn("working on hang", result.logs)
        self.assertIn("Task timed out after 2.00 seconds\n", result.logs)
        self.assertTrue(ends(first["pid"]))
        self.assertTrue(ends(first["child"]), "its child process is still running")
        limit(environment, PATIENCE)
        _, second = self.succeeds(environment)
        self.assertNotEqual(first["pid"], second["pid"])

    def test_an_exit_ends_the_invocation_at_once(self):
        environment = self.environment()
        _, first = self.succeeds(environment, "child")
        self.fails(environment, "Runtime.ExitError", r"^RequestId: id-1 Error: Runtime exited with error: exit status 4$",
                   "exit", status=4)
        self.assertTrue(ends(first["child"]), "its child process is still running")
        result = self.fails(environment, "Runtime.ExitError", "signal: killed$", "kill")
        self.assertIn("signal: killed\nRuntime.ExitError\n", result.logs)
        self.succeeds(environment)

    def test_an_exit_after_the_answer_is_nobodys_failure(self):
        environment = self.environment()
        for i in range(20):
            self.succeeds(environment, request_id=f"id-{i}", then="exit")

    def test_an_error_of_the_function_is_handed_on(self):
        environment = self.environment()
        self.fails(environment, "E", "^m$", "error")
        self.succeeds(environment)

    def test_an_init_that_fails_is_tried_again_and_told(self):
        for mode, kind, text in (
            ("init error", "Config", "^no table$"),
            ("init exit", "Runtime.ExitError", "exit status 3$"),
        ):
            environment = self.environment(MODE=mode)
            for _ in range(2):
                result = self.fails(environment, kind, text)
                self.assertIn("starting " + mode, result.logs)

    def test_an_init_that_hangs_has_the_time_of_the_function(self):
        environment = self.environment(timeout=1, start=False, MODE="init hangs")
        self.fails(environment, "Sandbox.Timedout", "Task timed out after 1.00 seconds$")

    def test_a_bootstrap_that_cannot_be_executed(self):
        with tempfile.NamedTemporaryFile() as foreign:
            foreign.write(b"\x7fELF of another processor")
            foreign.flush()
            os.chmod(foreign.name, 0o755)
            self.fails(self.environment(bootstrap=Path(foreign.name)), "Runtime.InvalidEntrypoint", "Exec format error$")

    def test_each_invocation_gets_its_own_answer(self):
        environment = self.environment()
        for i in range(20):
            _, answer = self.succeeds(environment, request_id=f"id-{i}", number=i)
            self.assertEqual(i, answer["event"]["number"])
        # Neither a missing answer nor an error is filled with the answer before.
        self.fails(environment, "E", "^m$", "error", request_id="id-20")
        limit(environment, 1)
        self.fails(environment, "Sandbox.Timedout", "timed out", "hang", request_id="id-21")
        limit(environment, PATIENCE)
        _, answer = self.succeeds(environment, request_id="id-22", number=22)
        self.assertEqual(22, answer["event"]["number"])

    def test_a_session_returns_no_answer_to_another_invocation(self):
        session = Session()
        first, second = (Invocation(name, b"{}", ARN, TRACE, time.time() + PATIENCE) for name in ("id-1", "id-2"))
        answers = []
        for invocation in (first, second):
            t = threading.Thread(target=lambda i=invocation: answers.append(session.run(i)))
            t.start()
            self.assertIs(invocation, session.next())
            self.assertEqual(Reply.UNKNOWN_ID, session.answer("id-3", Answer(b"stray", False)))
            if invocation is second:
                self.assertTrue(t.is_alive(), "the second invocation has the answer to the first")
                self.assertEqual(Reply.UNKNOWN_ID, session.answer("id-1", Answer(b"late", False)))
            session.answer(invocation.request_id, Answer(invocation.request_id.encode(), False))
            t.join()
        self.assertEqual([b"id-1", b"id-2"], [a.payload for a in answers])
        late = Invocation("id-4", b"{}", ARN, TRACE, time.time())
        self.assertIsNone(session.run(late), "an invocation without time has the answer to the second")

    def test_large_payloads(self):
        environment = self.environment()
        _, answer = self.succeeds(environment, "", padding="x" * 6_000_000)
        self.assertEqual(6_000_000, len(answer["event"]["padding"]))
        failed = self.fails(environment, "Function.ResponseSizeTooLarge", r"\(6291556 bytes\)", "large", bytes=6_291_556)
        result, _ = self.succeeds(environment, "")
        # Output after the answer is in the logs of this invocation or of the next one.
        self.assertIn("answered 413", failed.logs + result.logs)
        self.succeeds(environment, "large", bytes=6_000_000)

    def test_a_streamed_response(self):
        environment = self.environment()
        _, answer = self.succeeds(environment, "chunks")
        self.assertEqual({"a": 1}, answer)
        self.fails(environment, "Broken", "broke off", "chunks", trailer="Lambda-Runtime-Function-Error-Type: Broken\r\n")

    def test_answers_that_nobody_asked_for_are_refused(self):
        environment = self.environment()
        first, _ = self.succeeds(environment, "misbehave")
        second, _ = self.succeeds(environment, request_id="id-2")
        self.assertIn("statuses 400 202 403 403 404", first.logs + second.logs)

    def test_logs_are_those_of_the_invocation(self):
        environment = self.environment()
        first, _ = self.succeeds(environment, "", request_id="id-1")
        second, _ = self.succeeds(environment, "", request_id="id-2")
        self.assertTrue(first.logs.startswith("START RequestId: id-1 Version: $LATEST\nstarting \nworking on \n"), first.logs)
        self.assertRegex(first.logs, r"END RequestId: id-1\nREPORT RequestId: id-1\tDuration: [\d.]+ ms\tBilled Duration: \d+ ms"
                                     r"\tMemory Size: 128 MB\tMax Memory Used: [1-9]\d* MB\tInit Duration: [\d.]+ ms\n$")
        self.assertNotIn("id-1", second.logs)
        self.assertNotIn("Init Duration", second.logs)
        self.assertEqual(1, len(re.findall("working on", second.logs)))

    def test_environments_do_not_wait_for_each_other(self):
        environments = [self.environment() for _ in range(4)]
        pids, folder = [], self.folder()

        def work(environment):
            pids.append(self.succeeds(environment, meet=(folder, 4))[1]["pid"])

        threads = [threading.Thread(target=work, args=(e,)) for e in environments]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(4, len(set(pids)))

    def at_once(self, environment, *events):
        """Runs invocations at the same time and returns their answers."""
        answers = [None] * len(events)

        def work(i):
            answers[i] = self.invoke(environment, request_id=f"id-{i}", **events[i])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(events))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return [(result.answer.is_error, answer) for result, answer in answers]

    def test_a_process_gets_several_invocations_at_once(self):
        environment = self.environment(concurrency=4)
        folder = self.folder()
        answers = self.at_once(environment, *({"meet": (folder, 4), "do": "linger", "number": i} for i in range(8)))
        self.assertEqual(4, max(a["most"] for _, a in answers), "the first four at once, then the others")
        self.assertEqual([(False, i) for i in range(8)], [(failed, a["event"]["number"]) for failed, a in answers])
        self.assertEqual(1, len({a["pid"] for _, a in answers}))

    def test_a_time_out_leaves_the_others_running(self):
        environment = self.environment(concurrency=2)
        folder, answers, logs = self.folder(), [], ""
        t = threading.Thread(target=lambda: answers.append(self.succeeds(environment, meet=(folder, 3))))
        t.start()
        self.assertTrue(eventually(lambda: os.listdir(folder)))
        limit(environment, 1)
        self.fails(environment, "Sandbox.Timedout", "timed out", request_id="id-2", meet=(folder, 3))
        limit(environment, PATIENCE)
        Path(folder, "of this test").touch()
        t.join()
        ((first, other),) = answers

        def refused():
            nonlocal logs
            logs += environment.take_logs()
            return "answered 403" in first.logs + logs

        self.assertTrue(eventually(refused), "the invocation that timed out continues, and its answer is too late")
        _, after = self.succeeds(environment, request_id="id-3")  # from here on the process has forgotten the other one
        self.assertEqual(other["pid"], after["pid"])

    def test_an_exit_ends_all_invocations_of_the_process(self):
        environment = self.environment(concurrency=2)
        _, first = self.succeeds(environment, request_id="first")
        folder = self.folder()
        answers = self.at_once(environment, {"meet": (folder, 3)}, {"meet": (folder, 2), "do": "exit", "status": 1})
        self.assertEqual([(True, "Runtime.ExitError")] * 2, [(failed, a["errorType"]) for failed, a in answers])
        _, second = self.succeeds(environment, request_id="second")
        self.assertNotEqual(first["pid"], second["pid"])

    def test_stop_ends_a_running_invocation(self):
        code = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, code)
        shutil.copy(BOOTSTRAP, code)
        environment = Environment(Function(code, "1", PATIENCE, 128), {})
        environment.start()
        results = []
        t = threading.Thread(target=lambda: results.append(self.invoke(environment, "hang")[1]))
        t.start()
        self.assertTrue(eventually(lambda: "working" in environment.take_logs()))
        environment.stop()
        t.join()
        self.assertEqual("Runtime.ExitError", results[0]["errorType"])


if __name__ == "__main__":
    unittest.main()
