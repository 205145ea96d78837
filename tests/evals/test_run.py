"""The loop over questions, the results it keeps, and needles at their places."""

import json
import random
from pathlib import Path

import pytest

from hy3.errors import Hy3Error
from hy3.evals.client import Answer, Request
from hy3.evals.interval import wilson
from hy3.evals.needle import Needle
from hy3.evals.results import Results
from hy3.evals.run import run
from hy3.evals.suite import Grade, Settings, Task


class Words:
    """Counts words, and answers with the last word of the question."""

    name = "words"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def count(self, text: str) -> int:
        return len(text.split())

    def ask(self, request: Request) -> Answer:
        self.asked.append(request)
        return Answer(request.messages[0]["content"].split()[-1])


class Echo:
    name = "echo"

    def tasks(self) -> list[Task]:
        return [Task(f"t{i}", "even" if i % 2 == 0 else "odd", {"n": i}) for i in range(5)]

    def request(self, task: Task, seed: int, settings: Settings) -> Request:
        return Request([{"role": "user", "content": f"say {task.record['n'] + seed}"}], seed=seed)

    def grade(self, task: Task, answer: Answer) -> Grade:
        return Grade(answer.text == str(task.record["n"]), "")


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    about = {"model": "words"}
    client, path = Words(), tmp_path / "out.json"

    def stop(done: int, total: int, task: str, right: bool) -> None:
        assert total == 10
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Echo(), client, Settings(), range(2), Results.open(about, path, False), progress=stop)
    results = Results.open(about, path, True)
    run(Echo(), client, Settings(), range(2), results)
    assert len(client.asked) == 10
    saved = json.loads(path.read_text())["suites"]["echo"]
    assert saved == json.loads(json.dumps(results.suites["echo"]))
    assert saved["score"]["right"] == 5 and saved["score"]["asked"] == 10
    assert saved["rows"]["even"]["asked"] == 6
    assert [(t["id"], t["seed"]) for t in saved["transcripts"]][-1] == ("t4", 1)
    with pytest.raises(Hy3Error, match="model was 'words'"):
        Results.open({"model": "other"}, path, True)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(Hy3Error, match="no results"):
        Results.open(about, tmp_path / "other.json", True)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"), [(0, 0, 0, 1), (10, 10, 0.7225, 1), (5, 10, 0.2366, 0.7634)]
)
def test_wilson(right: int, count: int, low: float, high: float) -> None:
    assert wilson(right, count) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("tokens", [100, 101, 500, 1003])
@pytest.mark.parametrize("needles", [1, 3])
def test_needles(tokens: int, needles: int) -> None:
    client = Words()
    suite = Needle(client, (tokens,), (0.0, 0.5, 1.0), needles)
    for task in suite.tasks():
        content = suite.request(task, 1, Settings()).messages[0]["content"]
        text, question = content.split("\n\n")
        assert client.count(text) == tokens
        codes = task.record["codes"]
        assert len(codes) == needles and all(code in text and code not in question for code in codes)
        at = len(text[: text.index(codes[0])].split()) / tokens
        assert abs(at - task.record["depth"]) < 12 / tokens + 0.1
        assert suite.grade(task, Answer(" and ".join(codes))).right
        assert not suite.grade(task, Answer(codes[0][:5])).right
        other = suite.request(task, 2, Settings()).messages[0]["content"]
        assert other != content


def test_a_text_too_short_for_its_needles_is_refused() -> None:
    suite = Needle(Words(), (100,), (0.5,), 8)
    with pytest.raises(Hy3Error, match="no room for 8 needles"):
        suite.request(suite.tasks()[0], 0, Settings())


def test_sentences_are_many() -> None:
    from hy3.evals.files import find
    from hy3.evals.needle import sentence

    words = json.loads(find("needle.json").read_text())
    source = random.Random(0)
    assert len({sentence(source, words) for _ in range(1000)}) > 900
