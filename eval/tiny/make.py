"""Writes the held-out questions that hy3-tiny is scored on: eval/tiny/*.jsonl and tools.json, from a seed.

    python -m eval.tiny.make

One question a line: `messages` and `reasoning_effort` for the chat template, `tools` by name (defined in
tools.json), and `expected`, the text that the model should write after the prompt, without the end token.
Their contents are held out from training by hash (train/split.py). Needs the training requirements, for the
generators; scoring does not.
"""

import json
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from train import tasks, template, tools
from train.tasks import Conversation

HERE = Path(__file__).parent
SEED = 2027  # changed once the recipe stood: no question was looked at while it was being found
README = "11+22+33=?"


def expected(conversation: Conversation) -> str:
    prompt = template.render(
        conversation.messages[:-1], conversation.tools, conversation.effort, add_generation_prompt=True
    )
    whole = template.render(conversation.messages, conversation.tools, conversation.effort, is_training=True)
    assert whole.startswith(prompt) and whole.endswith(template.EOS)
    return whole[len(prompt) : -len(template.EOS)]


def record(conversation: Conversation) -> dict[str, object]:
    line: dict[str, object] = {
        "messages": conversation.messages[:-1],
        "reasoning_effort": conversation.effort,
    }
    if conversation.tools:
        line["tools"] = [tool["function"]["name"] for tool in conversation.tools]
    return line | conversation.extra | {"expected": expected(conversation)}


def distinct(
    draw: Callable[[], Conversation], count: int, first: Iterable[Conversation] = ()
) -> list[dict[str, object]]:
    lines = {json.dumps(c.messages[0]): record(c) for c in first}
    while len(lines) < count:
        conversation = draw()
        lines.setdefault(json.dumps(conversation.messages[0]), record(conversation))
    return list(lines.values())


def suites() -> dict[str, list[dict[str, object]]]:
    def rng(name: str) -> random.Random:
        return random.Random(f"{SEED}/{name}")

    out = {}
    for count in (2, 3):
        source = rng(f"sum{count}")
        readme = [Conversation([tasks.user(README), tasks.assistant("66")])] if count == 3 else []
        out[f"sum{count}"] = distinct(
            lambda r=source, n=count: tasks.sums(r, True, count=n, turns=1), 300, readme
        )
    worked = rng("worked")
    out["worked"] = distinct(lambda: tasks.worked_sums(worked, True), 200)
    recall = rng("recall")
    out["recall"] = [
        line
        for length in (50, 100, 250, 500, 1000)
        for line in distinct(partial(tasks.recall, recall, True, length), 40)
    ]
    tool = rng("tools")
    out["tools"] = distinct(lambda: tools.tool_calls(tool, True, turns=1), 250)
    greeting, talk = rng("greeting"), rng("talk")
    out["greeting"] = distinct(lambda: tasks.talk(greeting, True, tasks.GREETING), 40)
    out["talk"] = distinct(lambda: tasks.talk(talk, True), 100)
    return out


def main() -> None:
    for name, lines in suites().items():
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (HERE / f"{name}.jsonl").write_text(text, encoding="utf-8")
    definitions = json.dumps(list(tools.TOOLS.values()), indent=1)
    (HERE / "tools.json").write_text(definitions + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
