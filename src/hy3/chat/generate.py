"""Runs a session over a prompt and streams the answer: the one loop behind `hy3 run` and `hy3 chat`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from hy3.chat.progress import PromptProgress
from hy3.chat.reply import Chunk, Reply
from hy3.errors import Hy3Error

if TYPE_CHECKING:
    from hy3core import Sampling, Session, Tokenizer


class PromptTooLong(Hy3Error):
    """The prompt leaves no room for an answer."""

    def __init__(self, length: int, ctx: int, model_ctx: int) -> None:
        wanted = -(-(length + 256) // 256) * 256  # with room for a short answer
        self.length, self.ctx = length, ctx
        hint = "Shorten the prompt"
        if ctx < wanted <= model_ctx:
            hint += f", or use -c {wanted} or more (the model was trained for {model_ctx})"
        super().__init__(
            f"The prompt has {length} tokens, and a context of {ctx} has no room for it and an answer", hint
        )


@dataclass(frozen=True)
class Generator:
    session: "Session"
    tokenizer: "Tokenizer"
    sampling: "Sampling"
    ctx: int  # positions of the session
    model_ctx: int  # positions the model was trained for
    max_tokens: int | None = None  # of one answer; None: as many as the context has room for
    stops: Sequence[str] = ()
    mtp: int = 0  # most drafts at a time; -1: as many as pay
    pos_jump: int = 0  # positions that lie between prompt and answer

    def new_reply(self, thinking: bool) -> Reply:
        return Reply(self.tokenizer, self.stops, thinking)

    def room(self, prompt: Sequence[int]) -> int:
        """Tokens an answer can have; PromptTooLong if none."""
        room = self.ctx - len(prompt)
        if room < 1:
            raise PromptTooLong(len(prompt), self.ctx, self.model_ctx)
        return room

    def stream(self, prompt: Sequence[int], reply: Reply) -> Iterator[Chunk]:
        """Yields text as it becomes certain. After a KeyboardInterrupt, which may come out at any point, what
        is in `reply` up to then is good: `reply.finish()` gives the text still held back."""
        room = self.room(prompt)
        wanted = room if self.max_tokens is None else min(self.max_tokens, room)
        generation = self.session.generate(
            list(prompt),
            max_tokens=wanted,
            sampling=self.sampling,
            mtp=self.mtp,
            pos_jump=self.pos_jump,
        )
        with PromptProgress(len(prompt)) as progress:
            while generation.prefill():
                progress.update(self.session.position)
            first = list(islice(generation, 1))  # computes the rest of the prompt
        for token in chain(first, generation):
            yield from reply.push(token)
            if reply.stopped:
                reply.end = "stop"
                break
        else:
            ended = self.session.stats["finish_reason"] == "stop"
            reply.end = "token" if ended else "length" if wanted == self.max_tokens else "context"
        yield from reply.finish()


def speeds(stats: Mapping[str, Any]) -> str:
    """A session's statistics of the last answer, in a line."""
    new, generated = stats["prompt_tokens"] - stats["reused_tokens"], stats["generated_tokens"]
    reused = f" + {stats['reused_tokens']} reused" if stats["reused_tokens"] else ""
    return (
        f"prompt {new} tokens{reused}, {rate(new, stats['prompt_s'])}; "
        f"answer {generated} tokens, {rate(generated, stats['decode_s'])}{drafts(stats)}"
    )


def drafts(stats: Mapping[str, Any]) -> str:
    """How many drafts were right, and of those at each depth that came to the test which share."""
    if not stats["drafted"]:
        return ""
    shares = [f"{right / judged:.0%}" for judged, right in stats["drafts"] if judged]
    return f"; {stats['accepted']} of {stats['drafted']} drafts accepted (by depth {', '.join(shares)})"


def rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tok/s" if seconds > 0 else "- tok/s"
