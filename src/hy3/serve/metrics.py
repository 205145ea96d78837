"""GET /metrics: what the server does, for Prometheus. A registry of its own, so that servers do not mix."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hy3.serve.engine import Engine

# Seconds.
FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
EACH_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

# Of Scheduler.stats: key, name, help.
GAUGES = (
    ("running", "hy3_requests_running", "Generations being computed"),
    ("waiting", "hy3_requests_waiting", "Generations waiting for a place"),
    ("kv_tokens", "hy3_kv_tokens", "Tokens in the KV cache, finished conversations included"),
    ("kv_budget", "hy3_kv_budget_tokens", "Tokens that the KV cache may hold"),
)
COUNTERS = (
    ("prompt_tokens", "hy3_prompt_tokens", "Prompt tokens taken in, reused ones included"),
    ("reused_tokens", "hy3_reused_tokens", "Prompt tokens that were in the KV cache already"),
    ("generated_tokens", "hy3_generated_tokens", "Tokens generated"),
    ("drafted", "hy3_drafted_tokens", "Tokens that the MTP layer drafted"),
    ("accepted", "hy3_accepted_tokens", "Drafts that were right"),
    ("steps", "hy3_steps", "Steps computed"),
    ("preempted", "hy3_preempted", "Generations put off to make room in the KV cache"),
)


class SchedulerCollector(Collector):
    """Reads the scheduler's own numbers when asked."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats
        for key, name, text in GAUGES:
            yield GaugeMetricFamily(name, text, value=stats[key])
        for key, name, text in COUNTERS:
            yield CounterMetricFamily(name, text, value=stats[key])


class Metrics:
    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(SchedulerCollector(engine))
        self._requests = Counter(
            "hy3_http_requests",
            "Requests by endpoint and status",
            ["endpoint", "code"],
            registry=self._registry,
        )
        self._first = Histogram(
            "hy3_time_to_first_token_seconds",
            "From the arrival of a request to its first token",
            buckets=FIRST_TOKEN,
            registry=self._registry,
        )
        self._each = Histogram(
            "hy3_time_per_token_seconds",
            "From token to token, a generation's mean",
            buckets=EACH_TOKEN,
            registry=self._registry,
        )

    def answered(self, endpoint: str, code: int) -> None:
        self._requests.labels(endpoint, str(code)).inc()

    def generated(self, clock: "Clock") -> None:
        """A generation is over."""
        if clock.first is not None:
            self._first.observe(clock.first - clock.begun)
        if clock.first is not None and clock.tokens > 1:
            self._each.observe((clock.last - clock.first) / (clock.tokens - 1))

    def page(self) -> bytes:
        return generate_latest(self._registry)


class Clock:
    """Of one generation: when its request and its tokens came."""

    def __init__(self, begun: float) -> None:
        self.begun = self.last = begun
        self.first: float | None = None
        self.tokens = 0

    def token(self) -> None:
        self.last = time.monotonic()
        self.tokens += 1
        if self.first is None:
            self.first = self.last


class CountRequests:
    """ASGI middleware that counts what was answered. Paths that are no endpoint are one."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(endpoint(scope), message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            self._metrics.answered(endpoint(scope), 500)
            raise


def endpoint(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "other"))
