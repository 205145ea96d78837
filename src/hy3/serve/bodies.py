"""Fields that the bodies of several of OpenAI's endpoints share. What is not listed is ignored, as clients
send much that only their own service knows."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hy3.serve.errors import bad_request
from hy3.serve.prompt import Decoding
from hy3.serve.service import Service

MOST_STOPS = 16
LARGE = (1 << 31) - 1


class Body(BaseModel):
    """Numbers are numbers, not strings, and finite."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool = False


class SamplingBody(Body):
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(1, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 64)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=LARGE, description="0 and -1: all tokens")
    min_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, ge=0.01, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def decoding(self, service: Service, max_tokens: int | None, top_logprobs: int | None) -> Decoding:
        n = 1 if self.n is None else self.n
        if n > service.most_choices:
            raise bad_request(f"n is {n}, and this server gives at most {service.most_choices} answers.", "n")
        return Decoding(
            max_tokens=max_tokens,
            n=n,
            stop=self._stops(),
            sampling=self._sampling(),
            seed=None if self.seed is None else self.seed % (1 << 64),
            top_logprobs=top_logprobs,
            logit_bias=self._biases(service.model.config.vocab_size),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
        )

    def _stops(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MOST_STOPS:
            raise bad_request(
                f"There are {len(stops)} stop strings; at most {MOST_STOPS} are allowed.", "stop"
            )
        if "" in stops:
            raise bad_request("An empty stop string would stop everything. Leave it out.", "stop")
        return stops

    def _sampling(self) -> dict[str, Any]:
        names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if given.get("top_k") == -1:
            given["top_k"] = 0
        return given

    def _biases(self, vocab_size: int) -> dict[int, float]:
        biases = {}
        for text, bias in (self.logit_bias or {}).items():
            token = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
            if not 0 <= token < vocab_size:
                raise bad_request(f"{text!r} is no token id from 0 to {vocab_size - 1}.", "logit_bias")
            if not -100 <= bias <= 100:
                raise bad_request(
                    f"The bias of token {token} is {bias:g}, not from -100 to 100.", "logit_bias"
                )
            biases[token] = bias
        return biases
