from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.config.documents import (
    DOCUMENT_MAX_BYTES,
    parse_json,
    parse_toml,
    read_document,
)
from skippyd.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"s: line 1 column 1: Expecting value"),
        ('{"a": 1,}', r"s: line 1 column \d+: "),
        ('{"a": 1} x', r"s: line 1 column 10: Extra data"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e999}', "1e999 is out of range"),
        ('{"a": ' + "9" * 5000 + "}", r"9+… is out of range"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "c: is given twice"),
        ("[" * 65, "nested deeper than 64"),
        ('{"a":' * 100_000, "nested deeper than 64"),
    ],
)
def test_what_json_parsers_let_pass_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_json(text, source="s")


def test_json_within_the_bounds_is_read() -> None:
    assert parse_json('{"a": [1, -2.5, null, true, "x"]}', source="s") == {
        "a": [1, -2.5, None, True, "x"]
    }
    assert parse_json("[" * 64 + "]" * 64, source="s") != []
    assert parse_json(str(2**64 - 1), source="s") == 2**64 - 1


def test_a_toml_mistake_keeps_its_line() -> None:
    with pytest.raises(ConfigError, match=r"nodes\.toml: is not valid TOML: .*line 2"):
        parse_toml("a = 1\nb = \n", source="nodes.toml")


def test_toml_is_bounded_as_well() -> None:
    with pytest.raises(ConfigError, match="nested deeper"):
        parse_toml("a = " + "[" * 70 + "]" * 70, source="s")
    assert parse_toml("[[node]]\nid = 'a'\n", source="s") == {"node": [{"id": "a"}]}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"absent\.json: cannot be read: No such file"
    ):
        read_document(tmp_path / "absent.json")


def test_a_directory_is_no_document(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_document(tmp_path)


def test_an_endless_file_is_read_no_further_than_the_limit() -> None:
    with pytest.raises(ConfigError, match="is larger than 1048576 bytes"):
        read_document(Path("/dev/zero"))


def test_a_document_of_the_largest_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b" " * DOCUMENT_MAX_BYTES)
    assert len(read_document(path)) == DOCUMENT_MAX_BYTES
    with path.open("ab") as file:
        file.write(b" ")
    with pytest.raises(ConfigError, match="is larger than"):
        read_document(path)


def test_bytes_that_are_not_utf8_are_located(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 7"):
        read_document(path)


@pytest.mark.usefixtures("no_leaks")
def test_reading_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert read_document(path) == "{}"


@given(st.text(max_size=60))
def test_any_text_is_a_document_or_a_config_error(text: str) -> None:
    for parse in (parse_json, parse_toml):
        refusal = ""
        try:
            parse(text, source="s")
        except ConfigError as error:
            refusal = str(error)
        assert not refusal or refusal.startswith("s: ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_what_json_writes_is_read_back(value: object) -> None:
    text = json.dumps(value)
    if text.count("[") + text.count("{") <= 64:
        assert parse_json(text, source="s") == value
