"""`coding`: Python functions from a description, run against tests that the model does not see."""

import json
import secrets
import subprocess
import sys
import tempfile
from typing import Any

from hy3.evals import untrusted
from hy3.evals.client import Answer, Request
from hy3.evals.files import find, records
from hy3.evals.suite import Grade, Settings, Task, code_block

ASK = "\n\nAnswer with one Python code block that holds the whole solution. Use the standard library only."
SECONDS = 10.0


class Coding:
    name = "coding"

    def tasks(self) -> list[Task]:
        return [Task(r["id"], self.name, r) for r in records(find("coding.jsonl"))]

    def request(self, task: Task, seed: int, settings: Settings) -> Request:
        return Request(
            [{"role": "user", "content": task.record["prompt"] + ASK}],
            effort=settings.effort,
            max_tokens=settings.max_tokens or 2048,
            temperature=settings.temperature,
            seed=seed,
        )

    def grade(self, task: Task, answer: Answer) -> Grade:
        return grade(task.record, code_block(answer.text))


def grade(record: dict[str, Any], code: str) -> Grade:
    token = secrets.token_hex(16)
    request = {"code": code, "tests": record["tests"], "token": token, "seconds": SECONDS}
    with tempfile.TemporaryDirectory(prefix="hy3-eval-") as empty:
        process = subprocess.Popen(
            [sys.executable, "-I", untrusted.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=empty,
            env={},
            start_new_session=True,  # Ctrl-C at the terminal is ours, and all it started can be killed
        )
        try:
            out, said = process.communicate(json.dumps(request).encode() + b"\n", timeout=2 * SECONDS)
        except subprocess.TimeoutExpired:
            return Grade(False, f"took longer than {2 * SECONDS:g} s")
        finally:
            process.kill()
            process.communicate()
    if out.decode("utf-8", "replace").split() == [token]:
        return Grade(True)
    lines = said[-4000:].decode("utf-8", "replace").strip().splitlines()
    reason = lines[-1] if lines else ""
    if process.returncode < 0:
        reason = f"{reason} (ended by signal {-process.returncode})".strip()
    return Grade(False, reason or "ended without passing the tests")
