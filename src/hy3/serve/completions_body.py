"""The body of /v1/completions, and the jobs that it asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import Field

from hy3.serve.answer import Style
from hy3.serve.bodies import LARGE, ChoicesBody
from hy3.serve.errors import bad_request
from hy3.serve.prompt import Decoding, Job
from hy3.serve.service import Service

MOST_LOGPROBS = 20
DEFAULT_TOKENS = 16  # OpenAI's

Ids = list[Annotated[int, Field(ge=0, le=LARGE)]]


class CompletionsBody(ChoicesBody):
    prompt: str | Ids | list[str] | list[Ids]
    max_tokens: int | None = Field(DEFAULT_TOKENS, ge=0, le=LARGE)
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: bool | None = False
    best_of: int | None = Field(None, ge=1, le=LARGE)
    suffix: Any = Field(None, description="Refused: the model was not trained to fill in")

    @property
    def single(self) -> bool:
        """One prompt, not a list of them."""
        return isinstance(self.prompt, str) or isinstance((self.prompt or [""])[0], int)

    @property
    def prompts(self) -> Sequence[str | Ids]:
        return cast("Sequence[str | Ids]", [self.prompt] if self.single else self.prompt)


def decoding_of(body: CompletionsBody, service: Service) -> Decoding:
    """Refuses what this server does not do."""
    if body.suffix:
        raise bad_request("This model cannot fill in before a suffix. Leave it out.", "suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_request("Answers are not ranked: best_of can only be n. Leave it out.", "best_of")
    if body.stream and body.echo and body.logprobs is not None:
        raise bad_request("The log-probabilities of a prompt are not streamed. Leave stream out.", "stream")
    decoding = body.decoding_of_choices(service, body.max_tokens, body.logprobs)
    answers = decoding.n * len(body.prompts)
    if not 1 <= answers <= service.most_choices:
        raise bad_request(
            f"{len(body.prompts)} prompts with n {decoding.n} make {answers} answers, and this server gives "
            f"1 to {service.most_choices} at a time.",
            "prompt",
        )
    return replace(decoding, prompt_logprobs=body.logprobs if body.echo else None)


def jobs_of(body: CompletionsBody, decoding: Decoding, service: Service) -> list[Job]:
    """Tokenizes: call it in a thread that may wait."""
    tokenizer = service.model.tokenizer
    # Where logprobs are wanted an end token has one too, as whoever sums up a text's must know.
    ends = tokenizer.eos_ids if body.logprobs is not None else ()
    style = Style(stops=decoding.stop, plain=True, ends=ends)
    jobs = []
    for number, prompt in enumerate(body.prompts):
        param = "prompt" if body.single else f"prompt.{number}"
        ids = service.prompter.tokenize(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise bad_request("The prompt has no tokens. Give at least one.", param)
        if max(ids) >= tokenizer.vocab_size:
            raise bad_request(f"{max(ids)} is no token id from 0 to {tokenizer.vocab_size - 1}.", param)
        jobs.append(Job(ids, service.prompter.room(ids, decoding.max_tokens, param), decoding, style))
    return jobs
