"""What is shown of an answer, when, and which ids stand for it."""

from hypothesis import given
from hypothesis import strategies as st

from hy3.chat.reply import Chunk, Reply, StopFilter, ThinkSplitter, opens_thinking, unfinished
from tests.cli.fake_hy3core import END_THINK, THINK, Tokenizer

TOKENIZER = Tokenizer()
TAGS = ((THINK, END_THINK),)


def stream(
    text_or_ids: str | list[int], stops: tuple[str, ...] = (), thinking: bool = False
) -> tuple[Reply, list[Chunk]]:
    ids = TOKENIZER.spell(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
    reply = Reply(TOKENIZER, stops, thinking)
    chunks = []
    for token in ids:
        chunks += reply.push(token)
        if reply.stopped:
            break
    return reply, chunks + reply.finish()


def test_a_character_is_shown_only_when_whole() -> None:
    reply = Reply(TOKENIZER)
    first, second, third = TOKENIZER.spell("好")
    assert [reply.push(first), reply.push(second)] == [[], []]
    assert reply.push(third) == [Chunk("好", False)]


def test_a_character_cut_off_at_the_end_is_dropped_with_its_ids() -> None:
    ids = TOKENIZER.spell("ab好")[:-1]
    reply, chunks = stream(ids)
    assert (reply.content, chunks) == ("ab", [Chunk("a", False), Chunk("b", False)])
    assert reply.content_ids == ids[:2]


def test_a_stop_string_ends_the_answer_and_leaves_no_trace() -> None:
    reply, chunks = stream("one END two", stops=("END",))
    assert reply.stopped
    assert "".join(chunk.text for chunk in chunks) == reply.content == "one "
    assert reply.content_ids == TOKENIZER.spell("one ")


def test_the_beginning_of_a_stop_string_is_held_back_until_it_cannot_be_one() -> None:
    reply = Reply(TOKENIZER, ["END"])
    shown = [reply.push(token) for token in TOKENIZER.spell("xENxEN")]
    assert shown == [[Chunk("x", False)], [], [], [Chunk("ENx", False)], [], []]
    assert reply.finish() == [Chunk("EN", False)]
    assert reply.content == "xENxEN"


def test_a_stop_string_within_one_token_cuts_the_token_and_gives_up_its_ids() -> None:
    reply, _ = stream(TOKENIZER.encode("say hello"), stops=("llo",))
    assert reply.content == "say he"
    assert reply.content_ids is None


@given(st.lists(st.text("abc", max_size=4)), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_stop_filter_equals_a_search_in_the_whole_text(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    stop_filter = StopFilter(stops)
    shown = ""
    for piece in pieces:
        shown += stop_filter.push(piece)
        assert not any(stop in shown for stop in stops)
        if stop_filter.stopped:
            break
        assert text.startswith(shown)
    shown += stop_filter.finish()
    ends = [text.find(stop) for stop in stops if stop in text]
    assert stop_filter.stopped == bool(ends)
    if not ends:
        assert shown == text
    elif len(stops) == 1:
        assert shown == text[: ends[0]]


def test_thinking_is_told_apart_when_the_prompt_has_opened_it() -> None:
    reply, chunks = stream(f"because{END_THINK}66", thinking=True)
    assert (reply.reasoning, reply.content) == ("because", "66")
    assert reply.reasoning_ids == TOKENIZER.spell("because")
    assert reply.content_ids == TOKENIZER.spell("66")
    assert "".join(chunk.text for chunk in chunks if chunk.thinking) == "because"


def test_thinking_is_told_apart_when_the_model_opens_it() -> None:
    reply, _ = stream(f" {THINK}because{END_THINK}66")
    assert (reply.reasoning, reply.content) == ("because", "66")
    assert (reply.reasoning_ids, reply.content_ids) == (TOKENIZER.spell("because"), TOKENIZER.spell("66"))


def test_a_tag_further_on_is_text() -> None:
    reply, _ = stream(f"the tags {THINK} and {END_THINK}")
    assert (reply.reasoning, reply.content) == ("", f"the tags {THINK} and {END_THINK}")
    assert reply.reasoning_ids is None


def test_a_second_closing_tag_is_text() -> None:
    reply, _ = stream(f"a{END_THINK}b{END_THINK}c", thinking=True)
    assert (reply.reasoning, reply.content) == ("a", f"b{END_THINK}c")


def test_thinking_that_never_ends_is_all_reasoning() -> None:
    reply, _ = stream("on and on", thinking=True)
    assert (reply.reasoning, reply.content) == ("on and on", "")
    assert reply.reasoning_ids == TOKENIZER.spell("on and on")


def test_without_tags_in_the_vocabulary_both_kinds_count_as_text() -> None:
    class Plain(Tokenizer):
        def token_id(self, text: str) -> int | None:
            return None

    reply = Reply(Plain(), thinking=True)
    for token in TOKENIZER.spell("so</think>66"):
        reply.push(token)
    reply.finish()
    assert (reply.reasoning, reply.content) == ("so", "66")


def test_where_the_prompt_opens_thinking() -> None:
    assert opens_thinking(f"Hi{THINK}\n", TOKENIZER)
    assert not opens_thinking(f"Hi{THINK}{END_THINK}", TOKENIZER)
    assert not opens_thinking("<think>", TOKENIZER)  # not this vocabulary's tag


@given(st.lists(st.sampled_from(["a", " ", "<th", "<think>", "</think>", "</thi", "nk>"])), st.booleans())
def test_splitting_does_not_depend_on_where_the_stream_is_cut(pieces: list[str], thinking: bool) -> None:
    tags = (("<think>", "</think>"),)
    whole, parts = ThinkSplitter(tags, thinking), ThinkSplitter(tags, thinking)
    at_once = whole.push("".join(pieces)) + whole.finish()
    by_character = [
        chunk for piece in pieces for letter in piece for chunk in parts.push(letter)
    ] + parts.finish()
    for kind in (True, False):
        assert "".join(c.text for c in at_once if c.thinking == kind) == "".join(
            c.text for c in by_character if c.thinking == kind
        )
    assert (whole.reasoning_span, whole.content_start) == (parts.reasoning_span, parts.content_start)


def test_unfinished() -> None:
    assert unfinished("xab", ["abc", "b"]) == 2
    assert unfinished("xabc", ["abc"]) == 0
    assert unfinished("", ["abc"]) == 0
    assert unfinished("abc", []) == 0
