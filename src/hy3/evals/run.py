"""The loop that asks a suite's questions."""

from collections.abc import Callable, Iterable
from dataclasses import asdict

from hy3.evals.client import Client
from hy3.evals.results import Results
from hy3.evals.suite import Settings, Suite


def run(
    suite: Suite,
    client: Client,
    settings: Settings,
    seeds: Iterable[int],
    results: Results,
    limit: int | None = None,
    progress: Callable[[int, int, str, bool], None] = lambda done, total, task, right: None,
) -> None:
    """Asks what `results` has no answer to. `progress` hears (done, total, task, whether it was right)."""
    tasks = suite.tasks()[:limit]
    pairs = [(task, seed) for seed in seeds for task in tasks]
    known = results.asked(suite.name)
    for done, (task, seed) in enumerate(pairs, 1):
        if (task.id, seed) in known:
            continue
        request = suite.request(task, seed, settings)
        answer = client.ask(request)
        grade = suite.grade(task, answer)
        results.add(suite.name, task, seed, asdict(request), answer, grade)
        progress(done, len(pairs), task.id, grade.right)
