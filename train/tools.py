"""The tool-call task: one to three of six tools are offered, a question asks for one of them.

Names and texts in the arguments are drawn from lists and from syllables, so that the model has to copy, and
are held out by value; wordings are combinations of an opening, a core and an ending, held out as a whole.
"""

import random
from functools import partial
from typing import Any

from train import words
from train.split import argument_held_out, wording_held_out
from train.tasks import Conversation, Message, assistant, effort_and_thought, until, user

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def define(name: str, description: str, properties: dict[str, dict[str, str]]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = {
    tool["function"]["name"]: tool
    for tool in [
        define("get_weather", "Current weather for a city", {"city": STRING}),
        define("get_time", "Local time in a city", {"city": STRING}),
        define("set_timer", "Start a timer", {"minutes": INTEGER}),
        define("send_message", "Send a text to a person", {"to": STRING, "text": STRING}),
        define(
            "convert_money", "Convert an amount of money", {"amount": INTEGER, "from": STRING, "to": STRING}
        ),
        define("calculate", "Evaluate an expression", {"expression": STRING}),
    ]
}

CORES = {
    "get_weather": [
        "what is the weather in {city}",
        "how is the weather in {city}",
        "weather in {city}",
        "tell me the weather for {city}",
        "is it cold in {city}",
        "show the weather in {city}",
    ],
    "get_time": [
        "what time is it in {city}",
        "tell me the time in {city}",
        "time in {city}",
        "what is the local time in {city}",
        "how late is it in {city}",
    ],
    "set_timer": [
        "set a timer for {minutes} minutes",
        "start a timer of {minutes} minutes",
        "timer for {minutes} minutes",
        "wake me in {minutes} minutes",
        "remind me in {minutes} minutes",
    ],
    "send_message": [
        "send {to} a message: {text}",
        "tell {to}: {text}",
        "write to {to}: {text}",
        "message {to}: {text}",
        "send a text to {to}: {text}",
    ],
    "convert_money": [
        "convert {amount} {from} to {to}",
        "how much is {amount} {from} in {to}",
        "change {amount} {from} to {to}",
        "what are {amount} {from} in {to}",
    ],
    "calculate": [
        "calculate {expression} with the tool",
        "evaluate {expression}",
        "use the calculator for {expression}",
        "run {expression} in the calculator",
    ],
}
STARTS = ["", "", "Please ", "Hello, ", "Hey, ", "Could you help? ", "I want to know: ", "One question: "]
ENDS = ["", "?", ".", " please", ", please.", " now", " now?", " today."]


def draw_name(rng: random.Random, real: list[str], ends: list[str]) -> str:
    """A real name in a third of the cases, else one put together from syllables."""
    if rng.random() < 0.33:
        return rng.choice(real)
    middle = rng.choice(words.SYLLABLES_MIDDLE) if rng.random() < 0.4 else ""
    return rng.choice(words.SYLLABLES_START) + middle + rng.choice(ends)


def draw_message(rng: random.Random) -> str:
    return (
        rng.choice(words.MESSAGE_SUBJECTS)
        + " "
        + rng.choice(words.MESSAGE_STATES)
        + rng.choice(words.MESSAGE_ENDS)
    )


def draw_arguments(rng: random.Random, name: str) -> dict[str, Any]:
    if name in ("get_weather", "get_time"):
        return {"city": draw_name(rng, words.CITIES, words.SYLLABLES_END)}
    if name == "set_timer":
        return {"minutes": rng.randrange(1, 1000)}
    if name == "send_message":
        return {"to": draw_name(rng, words.PEOPLE, words.SYLLABLES_PERSON), "text": draw_message(rng)}
    if name == "convert_money":
        source, target = rng.sample(words.CURRENCIES, 2)
        return {"amount": rng.randrange(1, 10000), "from": source, "to": target}
    return {
        "expression": rng.choice("*-/").join(str(rng.randrange(1, 100)) for _ in range(rng.choice([2, 2, 3])))
    }


def open_values(arguments: dict[str, Any]) -> list[str]:
    """The values that the split looks at: all but the currencies, a closed list."""
    return [str(v) for k, v in arguments.items() if k not in ("from",) and v not in words.CURRENCIES]


def draw_question(rng: random.Random, name: str, arguments: dict[str, Any], held: bool) -> str:
    def wording() -> str:
        start, core, end = rng.choice(STARTS), rng.choice(CORES[name]), rng.choice(ENDS)
        if name == "send_message":
            end = ""  # the text runs to the end of the question
        if not start or start.endswith("? "):
            core = core[0].upper() + core[1:]
        return start + core + end

    return until(wording, lambda w: wording_held_out(w) == held).format(**arguments)


def call(name: str, arguments: dict[str, Any], thought: str | None = None) -> Message:
    message = assistant("", thought)
    message["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
    return message


def response(rng: random.Random, name: str) -> tuple[str, str]:
    """What a tool returns, and the short answer that repeats it."""
    value = {
        "get_weather": lambda: f"{rng.randrange(1, 40)} degrees",
        "get_time": lambda: f"{rng.randrange(1, 13)}:{rng.randrange(10, 60)}",
        "set_timer": lambda: "started",
        "send_message": lambda: "sent",
        "convert_money": lambda: str(rng.randrange(1, 10000)),
        "calculate": lambda: str(rng.randrange(1, 10000)),
    }[name]()
    return value, f"The tool says: {value}."


def tool_calls(rng: random.Random, held: bool, turns: int | None = None) -> Conversation:
    """Calls of one of the offered tools; in training several in a conversation, some with the tool's
    response.
    """
    offered = rng.sample(list(TOOLS), rng.choice([1, 2, 2, 3]))
    effort, thought = effort_and_thought(rng, "I call a tool.", 0.0 if held else 0.05)
    messages: list[Message] = []
    for _ in range(turns or rng.randint(2, 5)):
        name = rng.choice(offered)
        arguments = until(
            partial(draw_arguments, rng, name),
            lambda args: all(argument_held_out(v) == held for v in open_values(args)),
        )
        messages += [user(draw_question(rng, name, arguments, held)), call(name, arguments, thought)]
        if turns is None and rng.random() < 0.25:
            value, answer = response(rng, name)
            messages += [{"role": "tool", "content": value}, assistant(answer, thought)]
    return Conversation(messages, [TOOLS[name] for name in offered], effort)


ECHOES = ["Repeat: {x}", "Say {x}", "Repeat after me: {x}", "Please say {x}", "Just write {x}"]


def scrambled(rng: random.Random) -> str:
    """A name no list has: every letter and most pairs of letters occur, as they will in unseen names."""
    text = "".join(
        rng.choice("bcdfghjklmnprstvwz") * (rng.random() < 0.8) + rng.choice("aeiou") for _ in range(3)
    )
    return text[: rng.randint(3, 6)].capitalize() + rng.choice(
        ["", "", *"nrstpwkl", "rt", "nt", "rp", "ck", "st"]
    )


def echo(rng: random.Random) -> Conversation:
    """Names, texts and amounts said back: the copying that a call needs, without its long prompt."""
    messages: list[Message] = []
    for _ in range(rng.randint(2, 6)):
        name = rng.choice(["get_weather", "send_message", "send_message", "convert_money", "calculate"])
        arguments = until(
            partial(draw_arguments, rng, name),
            lambda args: not any(argument_held_out(v) for v in open_values(args)),
        )
        text = str(rng.choice(list(arguments.values())))
        if rng.random() < 0.5:
            text = until(lambda: scrambled(rng), lambda name: not argument_held_out(name))
        messages += [user(rng.choice(ECHOES).format(x=text)), assistant(text)]
    return Conversation(messages)
