"""Requests that share steps get what they would get alone, compared with ==, and the scheduler keeps its word
about room, order and time.
"""

import threading
import time
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from support.draft_models import write_draft_model
from support.numpy_hy3 import log_softmax
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core

CONFIG = make_config(num_nextn_predict_layers=1)
VOCAB = CONFIG["vocab_size"]
TEXT = make_tokens(CONFIG, 700, seed=91)
SAMPLINGS = [
    {},
    {"temperature": 0.8, "seed": 3, "top_k": 40},
    {"temperature": 1.4, "seed": 4, "top_p": 0.9, "repeat_penalty": 1.2},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Model:
    path = tmp_path_factory.mktemp("scheduler") / "model.gguf"
    write_model(path, CONFIG, make_weights(CONFIG, seed=90), in_type("q8_0"))
    return hy3core.Model(str(path), threads=2)


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Model:
    path = tmp_path_factory.mktemp("scheduler") / "drafting.gguf"
    write_draft_model(path, share=0.05)
    return hy3core.Model(path, threads=1)


class Answers:
    """Runs a scheduler until it has nothing to do, and keeps what each request got."""

    def __init__(self, scheduler: hy3core.Scheduler) -> None:
        self.scheduler = scheduler
        self.tokens: dict[int, list[int]] = {}
        self.ends: dict[int, hy3core.Event] = {}
        self.events: list[hy3core.Event] = []

    def submit(self, tokens: Iterable[int], **options: object) -> int:
        number = self.scheduler.submit(list(tokens), **{"stop_ids": [], **options})
        self.tokens[number] = []
        return number

    def step(self) -> list[hy3core.Event]:
        events = self.scheduler.step()
        for event in events:
            if event.token is not None:
                self.tokens[event.request].append(event.token)
            if event.finish:
                assert event.request not in self.ends
                self.ends[event.request] = event
        self.events += events
        return events

    def finish(self) -> "Answers":
        for _ in range(10_000):
            self.step()
            if len(self.ends) == len(self.tokens):
                return self
        raise AssertionError("The requests do not end.")


def alone(
    model: hy3core.Model, tokens: list[int], n: int, sampling: dict[str, float], **options: object
) -> list[int]:
    session = model.session(ctx=512, **options)
    return list(session.generate(tokens, n, hy3core.Sampling(**sampling), stop_ids=[]))


def requests() -> list[tuple[list[int], int, dict[str, float]]]:
    """Sixteen: prompts of 1 to 300 tokens, some with a common beginning, answers of 1 to 40."""
    rng = np.random.default_rng(5)
    out = []
    for i in range(16):
        begin = 0 if i % 3 == 0 else int(rng.integers(0, 300))
        length = int(rng.integers(1, 300))
        out.append((TEXT[begin : begin + length], int(rng.integers(1, 40)), SAMPLINGS[i % 3]))
    return out


@pytest.mark.parametrize("kv", ["f32", "f16", "q8", "q4"])
@pytest.mark.parametrize("room", ["wide", "narrow"])
def test_same_answer_alone_and_among_sixteen(model: hy3core.Model, kv: str, room: str) -> None:
    budget = 16 * 512 if room == "wide" else 640  # narrow: some wait, some are put back
    scheduler = hy3core.Scheduler(model, ctx=512, kv=kv, chunk=64, kv_budget=budget, max_running=16)
    answers = Answers(scheduler)
    numbers = [answers.submit(p, max_tokens=n, sampling=hy3core.Sampling(**s)) for p, n, s in requests()]
    answers.finish()
    for number, (prompt, n, sampling) in zip(numbers, requests(), strict=True):
        assert answers.tokens[number] == alone(model, prompt, n, sampling, kv=kv)
        assert answers.ends[number].finish == "length"
        assert answers.ends[number].usage["prompt_tokens"] == len(prompt)
    assert scheduler.stats["running"] == scheduler.stats["waiting"] == 0
    assert scheduler.stats["kv_tokens"] <= budget


def test_room_runs_out_and_requests_are_put_back(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=512, kv_budget=512, max_running=4)
    answers = Answers(scheduler)
    prompts = [TEXT[at : at + 60] for at in (0, 100, 200)]
    numbers = [answers.submit(p, max_tokens=200) for p in prompts]
    answers.finish()
    assert scheduler.stats["preempted"] > 0
    for number, prompt in zip(numbers, prompts, strict=True):
        assert answers.tokens[number] == alone(model, prompt, 200, {})


def test_short_contexts_run_side_by_side(model: hy3core.Model) -> None:
    """The budget is that of whole pages, however little of one a request may fill."""
    scheduler = hy3core.Scheduler(model, ctx=9, max_running=8)
    for at in range(8):
        scheduler.submit(TEXT[at : at + 1], max_tokens=8)
    scheduler.step()
    assert scheduler.stats["running"] == 8


def test_same_answer_with_a_reused_prefix(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=512, max_running=2)
    answers = Answers(scheduler)
    first = answers.submit(TEXT[:200], max_tokens=20)
    answers.finish()
    longer = [*TEXT[:200], *answers.tokens[first], *TEXT[300:330]]
    going_on = answers.submit(longer, max_tokens=20)
    answers.finish()
    assert answers.ends[first].usage["cached_tokens"] == 0
    assert answers.ends[going_on].usage["cached_tokens"] == 219  # the last token was never evaluated
    assert answers.tokens[going_on] == alone(model, longer, 20, {})
    branch = [*TEXT[:150], *TEXT[400:410]]
    other = answers.submit(branch, max_tokens=20)
    again = answers.submit(longer, max_tokens=20)  # still there: the branch did not cut it
    answers.finish()
    assert answers.ends[other].usage["cached_tokens"] == 150
    assert answers.tokens[other] == alone(model, branch, 20, {})
    assert answers.ends[again].usage["cached_tokens"] == len(longer) - 1
    assert answers.tokens[again] == answers.tokens[going_on]


def test_least_recently_used_prefix_goes_first(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=256, kv_budget=512, max_running=1)
    answers = Answers(scheduler)
    a, b, c = TEXT[:120], TEXT[200:320], TEXT[400:520]

    def cached(tokens: list[int]) -> int:
        number = answers.submit(tokens, max_tokens=1)
        answers.finish()
        return int(answers.ends[number].usage["cached_tokens"])

    assert [cached(a), cached(b), cached(a)] == [0, 0, 119]
    large = TEXT[450:690]  # 4 of 8 pages, and one more for its answer: one of the others must go
    assert cached(large) == 0
    assert cached(a) == 119
    assert cached(b) == 0
    assert cached(c) == 0


def test_requests_with_one_beginning_read_it_once(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=512, chunk=32, max_running=8)
    answers = Answers(scheduler)
    numbers = [
        answers.submit(
            TEXT[:300], max_tokens=10, sampling=hy3core.Sampling(temperature=1.0, seed=7, choice=i)
        )
        for i in range(4)
    ]
    answers.finish()
    cached = [answers.ends[n].usage["cached_tokens"] for n in numbers]
    assert cached[0] == 0
    assert all(300 - 64 <= n < 300 for n in cached[1:])  # for less than a page they do not wait
    for i, number in enumerate(numbers):
        assert answers.tokens[number] == alone(
            model, TEXT[:300], 10, {"temperature": 1.0, "seed": 7, "choice": i}
        )
    assert len({tuple(tokens) for tokens in answers.tokens.values()}) == 4


def test_long_prompt_does_not_stop_the_others(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=1024, chunk=512, max_running=2)
    answers = Answers(scheduler)
    running = answers.submit(TEXT[:10], max_tokens=1000)
    answers.step()
    reading = answers.submit(TEXT[:700], max_tokens=1)
    steps = 0
    while reading not in answers.ends:
        tokens = [event for event in answers.step() if event.request == running]
        assert len(tokens) == 1
        steps += 1
    assert steps > 2  # a step of 32 rows at first
    scheduler.cancel(running)
    answers.finish()


def test_short_prompt_passes_a_long_one(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=1024, chunk=32, max_running=2)
    answers = Answers(scheduler)
    long = answers.submit(TEXT[:600], max_tokens=1)
    short = answers.submit(TEXT[650:670], max_tokens=1)
    answers.finish()
    assert [event.request for event in answers.events if event.finish] == [short, long]


def test_cancelled_request_frees_its_slot(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=512, max_running=1)
    answers = Answers(scheduler)
    first = answers.submit(TEXT[:20], max_tokens=400)
    second = answers.submit(TEXT[20:40], max_tokens=3)
    third = answers.submit(TEXT[40:60], max_tokens=3)
    answers.step()
    scheduler.cancel(first)
    scheduler.cancel(third)
    scheduler.cancel(12345)
    events = answers.step()
    assert {(e.request, e.finish) for e in events if e.finish} == {(first, "cancelled"), (third, "cancelled")}
    assert any(e.request == second and e.token is not None for e in events)  # in the same step
    answers.finish()
    scheduler.cancel(second)
    assert scheduler.step() == []


def test_stop_ids_end_without_being_a_token(model: hy3core.Model) -> None:
    tokens = alone(model, TEXT[:30], 30, {})
    stop = tokens[7]
    answers = Answers(hy3core.Scheduler(model, ctx=512))
    number = answers.submit(TEXT[:30], max_tokens=30, stop_ids=[stop])
    answers.finish()
    assert answers.tokens[number] == tokens[: tokens.index(stop)]
    assert answers.ends[number].finish == "stop"
    assert answers.ends[number].token is None


def test_logprobs_are_of_the_raw_logits(model: hy3core.Model) -> None:
    prompt = TEXT[:50]
    answers = Answers(hy3core.Scheduler(model, ctx=512, kv="f32", chunk=16))
    number = answers.submit(prompt, max_tokens=5, top_logprobs=3, prompt_logprobs=2, logit_bias={7: 50.0})
    answers.submit(prompt[:20], max_tokens=5)  # in company
    answers.finish()
    assert answers.tokens[number] == [7] * 5
    logits = model.session(ctx=512, kv="f32").eval([*prompt, *answers.tokens[number]], logits="all")
    expected = log_softmax(np.asarray(logits, dtype=np.float64))
    for i, event in enumerate(e for e in answers.events if e.request == number and e.token is not None):
        row = expected[len(prompt) - 1 + i]
        assert event.logprob == pytest.approx(row[event.token], abs=1e-5)
        assert [token for token, _ in event.top] == np.argsort(-row, kind="stable")[:3].tolist()
    listed = answers.ends[number].usage["prompt_logprobs"]
    assert listed[0] is None
    assert len(listed) == len(prompt)
    for i, (chosen, top) in enumerate(listed[1:], 1):
        assert chosen == pytest.approx(expected[i - 1][prompt[i]], abs=1e-5)
        assert [token for token, _ in top] == np.argsort(-expected[i - 1], kind="stable")[:2].tolist()


def test_prompt_can_be_scored_alone(model: hy3core.Model) -> None:
    answers = Answers(hy3core.Scheduler(model, ctx=512, kv="f32"))
    number = answers.submit(TEXT[:512], max_tokens=0, prompt_logprobs=0)
    answers.finish()
    assert answers.ends[number].finish == "length"
    assert answers.tokens[number] == []
    got = [chosen for chosen, _ in answers.ends[number].usage["prompt_logprobs"][1:]]
    assert np.array_equal(np.float32(got), model.session(ctx=512, kv="f32").score(TEXT[:512])[1:])


def test_penalties_on_generated_tokens(model: hy3core.Model) -> None:
    answers = Answers(hy3core.Scheduler(model, ctx=512, max_running=1))
    once = answers.submit(TEXT[:20], max_tokens=20, logit_bias={7: 50.0, 8: 49.0}, presence_penalty=100.0)
    often = answers.submit(TEXT[:20], max_tokens=20, logit_bias={7: 90.0, 8: 40.0}, frequency_penalty=20.0)
    answers.finish()
    assert answers.tokens[once][:2] == [7, 8]
    assert 7 not in answers.tokens[once][2:]
    assert answers.tokens[often][:3] == [7, 7, 7]
    assert 8 in answers.tokens[often][3:6]


# --- masks


def allow(*ids: int) -> bytes:
    bits = np.zeros((VOCAB + 31) // 32 * 32, dtype=np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def test_mask_allows_what_it_says(model: hy3core.Model) -> None:
    calls: list[tuple[int, ...]] = []

    def mask(generated: tuple[int, ...]) -> bytes:
        calls.append(generated)
        return allow(len(generated) + 100)

    for sampling in SAMPLINGS:
        calls.clear()
        answers = Answers(hy3core.Scheduler(model, ctx=512))
        number = answers.submit(TEXT[:20], max_tokens=6, mask=mask, sampling=hy3core.Sampling(**sampling))
        answers.finish()
        assert answers.tokens[number] == [100, 101, 102, 103, 104, 105]
        assert calls == [tuple(range(100, 100 + i)) for i in range(6)]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (lambda generated: allow(), "allows no token"),
        (lambda generated: b"\xff", "The mask has 1 bytes"),
        (lambda generated: 1 / 0, "division by zero"),
        (lambda generated: None, "bytes-like"),
    ],
)
def test_bad_mask_ends_its_own_request_alone(
    model: hy3core.Model, mask: Callable[[tuple[int, ...]], bytes], message: str
) -> None:
    answers = Answers(hy3core.Scheduler(model, ctx=512))
    bad = answers.submit(TEXT[:20], max_tokens=6, mask=mask)
    good = answers.submit(TEXT[20:50], max_tokens=6)
    answers.finish()
    assert answers.ends[bad].finish == "error"
    assert message in answers.ends[bad].error
    assert answers.tokens[good] == alone(model, TEXT[20:50], 6, {})


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("mtp", [1, 3, -1])
def test_drafts_change_nothing(drafting: hy3core.Model, sampling: dict[str, float], mtp: int) -> None:
    vocab = drafting.config.vocab_size
    prompt = make_tokens(CONFIG, 60, seed=71)

    def mask(generated: tuple[int, ...]) -> bytes:
        """Odd tokens after even ones."""
        parity = len(generated) % 2
        bits = np.arange((vocab + 31) // 32 * 32) % 2 == parity
        return np.packbits(bits, bitorder="little").tobytes()

    texts = []
    for drafts in (0, mtp):
        scheduler = hy3core.Scheduler(drafting, ctx=512, mtp=True, max_running=2)
        answers = Answers(scheduler)
        options = {"sampling": hy3core.Sampling(**sampling), "mtp": drafts}
        masked = answers.submit(prompt, max_tokens=40, mask=mask, **options)
        for _ in range(10):
            answers.step()
        # Company comes and goes: steps with and without drafts take turns.
        free = answers.submit(prompt[:40], max_tokens=10, logit_bias={5: 2.0}, **options)
        answers.finish()
        texts.append((answers.tokens[masked], answers.tokens[free]))
        assert (scheduler.stats["drafted"] > 0) == (drafts > 0) or drafts == -1
        assert all(token % 2 == i % 2 for i, token in enumerate(answers.tokens[masked]))
    assert texts[0] == texts[1]


def test_drafts_after_a_prompt_that_was_there_but_for_its_last_token(drafting: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(drafting, ctx=512, mtp=True)
    answers = Answers(scheduler)
    prompt = make_tokens(CONFIG, 80, seed=92)
    for _ in range(2):
        number = answers.submit(prompt, max_tokens=30, mtp=3)
        answers.finish()
        assert answers.tokens[number] == alone(drafting, prompt, 30, {})
    assert answers.ends[number].usage["cached_tokens"] == 79


# --- what is refused


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokens": []}, hy3core.InvalidArgumentError, "The prompt has no tokens"),
        ({"tokens": [VOCAB]}, hy3core.InvalidArgumentError, "outside the vocabulary"),
        ({"tokens": [-1]}, hy3core.InvalidArgumentError, "outside the vocabulary"),
        ({"tokens": TEXT[:128]}, hy3core.ContextFullError, "128 tokens and the context holds 128"),
        ({"max_tokens": -1}, hy3core.InvalidArgumentError, "max_tokens is -1"),
        ({"logit_bias": {VOCAB: 1.0}}, hy3core.InvalidArgumentError, "logit_bias names token"),
        ({"logit_bias": {1: float("nan")}}, hy3core.InvalidArgumentError, "logit_bias of token 1 is nan"),
        ({"presence_penalty": float("inf")}, hy3core.InvalidArgumentError, "presence_penalty is inf"),
        ({"top_logprobs": VOCAB + 1}, hy3core.InvalidArgumentError, "Log-probabilities"),
        ({"top_logprobs": -1}, hy3core.InvalidArgumentError, "Log-probabilities"),
        ({"mtp": 1}, hy3core.InvalidArgumentError, "made without mtp"),
        ({"mask": 3}, TypeError, "mask must be callable"),
    ],
)
def test_refuses_at_once(
    model: hy3core.Model, options: dict[str, object], error: type[Exception], message: str
) -> None:
    scheduler = hy3core.Scheduler(model, ctx=128)
    with pytest.raises(error, match=message):
        scheduler.submit(**{"tokens": TEXT[:5], "max_tokens": 5, **options})
    assert scheduler.step() == []
    assert scheduler.stats["waiting"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_running": 0}, "max_running is 0"),
        ({"max_gap": 0.0}, "max_gap is 0"),
        ({"max_gap": float("nan")}, "max_gap is nan"),
        ({"kv_budget": 100}, "kv_budget is 100 tokens"),
        ({"chunk": 0}, "chunk is 0"),
        ({"ctx": 1 << 40}, "ctx is"),
        ({"kv": "q9"}, "kv is 'q9'"),
    ],
)
def test_refuses_options(model: hy3core.Model, options: dict[str, object], message: str) -> None:
    with pytest.raises(hy3core.InvalidArgumentError, match=message):
        hy3core.Scheduler(model, **{"ctx": 128, **options})


def test_submitted_and_cancelled_by_other_threads(model: hy3core.Model) -> None:
    scheduler = hy3core.Scheduler(model, ctx=512, max_running=3)
    expected = alone(model, TEXT[:30], 20, {})
    numbers: list[int] = []
    lock = threading.Lock()

    def client(at: int) -> None:
        for i in range(10):
            number = scheduler.submit(TEXT[:30], max_tokens=20, stop_ids=[])
            if (at + i) % 3 == 0:
                scheduler.cancel(number)
            else:
                with lock:
                    numbers.append(number)

    threads = [threading.Thread(target=client, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    tokens: dict[int, list[int]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < 40 and time.monotonic() < deadline:
        for event in scheduler.step():
            if event.token is not None:
                tokens.setdefault(event.request, []).append(event.token)
            if event.finish:
                ended.add(event.request)
    for thread in threads:
        thread.join()
    assert len(ended) == 40
    assert all(tokens[number] == expected for number in numbers)
