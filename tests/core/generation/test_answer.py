from __future__ import annotations

from skippyd.core.generation.answer import Answer


def test_an_end_token_counts_and_has_no_text() -> None:
    answer = Answer(10, ())
    assert answer.offer_token(b"Hi") == "Hi"
    assert answer.offer_end_token() == ""
    assert (answer.finish_reason, answer.completion_tokens) == ("stop", 2)


def test_the_limit_ends_with_length_and_shows_what_was_held_back() -> None:
    answer = Answer(2, ("<end>",))
    assert answer.offer_token(b"a<") == "a"
    assert answer.offer_token(b"en") == "<en"
    assert (answer.finish_reason, answer.completion_tokens) == ("length", 2)


def test_a_stop_string_in_the_last_allowed_token_still_means_stop() -> None:
    answer = Answer(1, ("b",))
    assert answer.offer_token(b"ab") == "a"
    assert answer.finish_reason == "stop"


def test_tokens_after_the_end_are_not_looked_at() -> None:
    answer = Answer(5, ("b",))
    answer.offer_token(b"ab")
    assert answer.offer_token(b"c") == ""
    assert answer.offer_end_token() == ""
    assert answer.end("length") == ""
    assert (answer.finish_reason, answer.completion_tokens) == ("stop", 1)


def test_the_chain_may_end_it_early() -> None:
    answer = Answer(5, ("bc",))
    assert answer.offer_token(b"ab") == "a"
    assert answer.end("length") == "b"
    assert answer.finish_reason == "length"


def test_an_incomplete_character_completed_by_the_end_can_still_stop() -> None:
    answer = Answer(5, ("\ufffd",))
    assert answer.offer_token(b"a\xf0") == "a"
    assert answer.end("length") == ""
    assert answer.finish_reason == "stop"
