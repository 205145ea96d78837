"""What every endpoint works with: the model, its engine, the server's settings."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hy3.chat.conversation import EFFORT
from hy3.serve.engine import Engine
from hy3.serve.errors import ApiError
from hy3.serve.metrics import Metrics
from hy3.serve.prompt import Prompter

if TYPE_CHECKING:
    from hy3core import Model


@dataclass(frozen=True)
class Settings:
    """What `hy3 serve` was started with, as far as requests are concerned."""

    names: Sequence[str]  # of the model; the first is the one it is listed under
    ctx: int  # tokens of a request, prompt and answer
    slots: int = 8  # generations at a time
    queue: int = 64  # more that may wait
    max_tokens: int | None = None  # of an answer; None: what the context has room for
    think: str = "off"  # a key of hy3.chat.conversation.EFFORT
    think_budget: int | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)  # arguments of hy3core.Sampling
    seed: int | None = None
    mtp: int = 0  # as Scheduler.submit takes it
    api_key: str | None = None
    body_limit: int = 4 << 20  # bytes
    cors: Sequence[str] = ()


class Service:
    def __init__(self, model: "Model", engine: Engine, settings: Settings) -> None:
        self.model = model
        self.engine = engine
        self.settings = settings
        self.metrics = Metrics(engine)
        self.started = time.time()
        self.prompter = Prompter(
            model, settings.ctx, settings.max_tokens, EFFORT[settings.think], settings.think_budget
        )

    @property
    def name(self) -> str:
        return self.settings.names[0]

    @property
    def most_choices(self) -> int:
        """Answers to one request: what could ever find room at once."""
        return min(128, self.settings.slots + self.settings.queue)

    def check_model(self, name: str | None) -> None:
        if name is not None and name not in self.settings.names:
            raise ApiError(
                404,
                f"There is no model {name!r} here. There is {', '.join(map(repr, self.settings.names))}.",
                param="model",
                code="model_not_found",
            )
