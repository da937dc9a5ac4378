"""The header reader takes what llama.cpp takes and names what is wrong with the rest."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.errors import ModelError
from skippyd.model.gguf_reader import GgufHeader, read_header
from skippyd.model.gguf_types import ValueKind
from skippyd.model.header_window import open_part
from skippyd.units import MIB
from support import gguf_bytes as gb


if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> GgufHeader:
    descriptor, part = open_part(path)
    try:
        return read_header(descriptor, part, 0)
    finally:
        os.close(descriptor)


def read_bytes(path: Path, data: bytes) -> GgufHeader:
    path.write_bytes(data)
    return read(path)


def length(value: int) -> bytes:
    return struct.pack("<Q", value)


ROW = gb.tensor_row("a")
DATA = bytes(128)
GOOD = gb.gguf([gb.u32("k", 7), gb.text("t", "x")], [ROW], DATA)
HUGE = 1 << 62

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "truncated: the magic number"),
    "three bytes": (b"GGU", "truncated: the magic number"),
    "wrong magic": (gb.gguf(magic=b"PK\x03\x04"), "not a GGUF file"),
    "old magic": (gb.gguf(magic=b"ggml"), "not a GGUF file"),
    "no version": (b"GGUF", "truncated: the version"),
    "version 0": (gb.gguf(version=0), "GGUF version 0"),
    "version 1": (gb.gguf(version=1), "GGUF version 1"),
    "version 4": (gb.gguf(version=4), "GGUF version 4"),
    "big-endian": (gb.gguf(version=0x03000000), r"big-endian GGUF \(version 3\)"),
    "no counts": (b"GGUF\x03\0\0\0\0", "truncated: the counts"),
    "too many tensors": (gb.gguf(tensor_count=65_537), "65537 tensors"),
    "huge tensor count": (gb.gguf(tensor_count=HUGE), f"{HUGE} tensors"),
    "negative tensor count": (gb.gguf(tensor_count=2**64 - 1), "tensors; the limit"),
    "too many keys": (gb.gguf(key_count=65_537), "65537 metadata keys"),
    "huge key count": (gb.gguf(key_count=HUGE), f"{HUGE} metadata keys"),
    "promised keys missing": (gb.gguf(key_count=3), "truncated: metadata key 0"),
    "promised tensors missing": (gb.gguf(tensor_count=3), "truncated: tensor 0"),
    "empty key": (gb.gguf([gb.u32("", 1)]), "name of 0 bytes"),
    "key of 257 bytes": (gb.gguf([gb.u32("k" * 257, 1)]), "name of 257 bytes"),
    "key of 2^62 bytes": (gb.gguf([length(HUGE)]), f"name of {HUGE} bytes"),
    "key that is not UTF-8": (gb.gguf([gb.u32(b"\xff\xfe", 1)]), "not UTF-8"),
    "key with a zero byte": (gb.gguf([gb.u32(b"a\0b", 1)]), "control characters"),
    "key twice": (gb.gguf([gb.u32("k", 1), gb.u32("k", 1)]), "'k' appears twice"),
    "key past the end": (gb.gguf([length(200) + b"k"]), "truncated"),
    "unknown value type": (gb.gguf([gb.entry("k", 13, b"")]), "unknown type 13"),
    "negative value type": (
        gb.gguf([gb.entry("k", 2**32 - 1, b"")]),
        "unknown type 4294967295",
    ),
    "value missing": (gb.gguf([gb.entry("k", gb.UINT64, b"")]), "the value of 'k'"),
    "string past the end": (
        gb.gguf([gb.entry("k", gb.STRING, length(100))]),
        "truncated: the text of 'k'",
    ),
    "string of 2^63": (
        gb.gguf([gb.entry("k", gb.STRING, length(2**63))]),
        "strings to 9223372036854775808 bytes",
    ),
    "array past the end": (
        gb.gguf([gb.array("k", gb.UINT32, 1000, b"")]),
        "truncated: array 'k'",
    ),
    "array of 2^62": (
        gb.gguf([gb.array("k", gb.UINT64, HUGE, b"")]),
        "truncated: array 'k'",
    ),
    "strings of 2^40": (
        gb.gguf([gb.array("k", gb.STRING, 1 << 40, b"")]),
        "truncated: array 'k'",
    ),
    "array string past the end": (
        gb.gguf([gb.array("k", gb.STRING, 1, length(1 << 20))]),
        "a string of 1048576 bytes",
    ),
    "array string of 2^64 - 1": (
        gb.gguf([gb.array("k", gb.STRING, 1, length(2**64 - 1))]),
        "a string of 18446744073709551615 bytes",
    ),
    "array of arrays": (
        gb.gguf([gb.array("k", gb.ARRAY, 1, b"\x09\0\0\0" * 1000)]),
        "array of arrays",
    ),
    "array of unknown type": (gb.gguf([gb.array("k", 99, 1, b"")]), "unknown type 99"),
    "alignment 0": (gb.gguf([gb.u32("general.alignment", 0)]), "alignment is 0"),
    "alignment 4": (gb.gguf([gb.u32("general.alignment", 4)]), "alignment is 4"),
    "alignment 48": (gb.gguf([gb.u32("general.alignment", 48)]), "alignment is 48"),
    "alignment 2^31": (
        gb.gguf([gb.u32("general.alignment", 1 << 31)]),
        "alignment is 2147483648",
    ),
    "alignment as text": (
        gb.gguf([gb.text("general.alignment", "32")]),
        "must be a u32",
    ),
    "tensor without a name": (gb.gguf([], [gb.tensor_row("")], DATA), "name of 0"),
    "tensor name of 64": (gb.gguf([], [gb.tensor_row("n" * 64)], DATA), "name of 64"),
    "tensor name with a zero byte": (
        gb.gguf([], [gb.tensor_row(b"a\0b")], DATA),
        "control characters",
    ),
    "tensor twice": (
        gb.gguf([], [ROW, gb.tensor_row("a", offset=128)], DATA * 2),
        "'a' appears twice",
    ),
    "no dimension": (gb.gguf([], [gb.tensor_row("a", ())], DATA), "0 dimensions"),
    "five dimensions": (
        gb.gguf([], [gb.tensor_row("a", (1,) * 5)], DATA),
        "5 dimensions",
    ),
    "2^32 - 1 dimensions": (
        gb.gguf([], [gb.tensor_row("a", (1,), dimensions=2**32 - 1)], DATA),
        "4294967295 dimensions",
    ),
    "zero length": (gb.gguf([], [gb.tensor_row("a", (0,))], DATA), "impossible shape"),
    "2^48 weights": (
        gb.gguf([], [gb.tensor_row("a", (1 << 24, 1 << 24))], DATA),
        "impossible shape",
    ),
    "weights that overflow 64 bits": (
        gb.gguf([], [gb.tensor_row("a", (1 << 63, 2, 1, 1))], DATA),
        "impossible shape",
    ),
    "unknown data type": (gb.gguf([], [gb.tensor_row("a", kind=43)], DATA), "type 43"),
    "removed data type": (gb.gguf([], [gb.tensor_row("a", kind=4)], DATA), "type 4,"),
    "row that is no multiple of the block": (
        gb.gguf([], [gb.tensor_row("a", (33,), kind=2)], DATA),
        "not a multiple of 32",
    ),
    "tensor that leaves a gap": (
        gb.gguf([], [gb.tensor_row("a", offset=32)], bytes(256)),
        "overlap or leave a gap",
    ),
    "tensors that overlap": (
        gb.gguf([], [ROW, gb.tensor_row("b", offset=64)], bytes(256)),
        "overlap or leave a gap",
    ),
    "tensor at 2^64 - 32": (
        gb.gguf([], [gb.tensor_row("a", offset=2**64 - 32)], DATA),
        "overlap or leave a gap",
    ),
    "tensor past the end": (gb.gguf([], [ROW], DATA[:-1]), "truncated: tensor 'a'"),
    "no tensor data at all": (gb.gguf([], [ROW]), "truncated: tensor 'a'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_one_quick_error_that_names_file_and_fault(
    tmp_path: Path, name: str
) -> None:
    data, message = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    started = time.process_time()
    with pytest.raises(ModelError, match=message) as caught:
        read(path)
    assert time.process_time() - started < 0.1
    assert str(caught.value).startswith(f"{path}: ")
    assert "; " in str(caught.value), "a remedy follows the fault"


@pytest.mark.parametrize(
    "name", ["strings of 2^40", "array of 2^62", "string of 2^63", "huge tensor count"]
)
def test_a_lying_count_allocates_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[name][0])
    tracemalloc.start()
    with pytest.raises(ModelError):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize("end", range(len(GOOD)))
def test_a_header_cut_anywhere_is_a_model_error(tmp_path: Path, end: int) -> None:
    with pytest.raises(ModelError, match=r"truncated|became shorter"):
        read_bytes(tmp_path / "cut.gguf", GOOD[:end])


@pytest.mark.slow
@given(position=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_read_or_a_model_error(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    changed = bytearray(GOOD)
    changed[position] = value
    with suppress(ModelError):
        assert len(read_bytes(path, bytes(changed)).tensors) <= 1


def test_values_of_every_kind_come_back(tmp_path: Path) -> None:
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q"}
    entries = [
        gb.entry(f"k{kind}", kind, struct.pack("<" + code, 3))
        for kind, code in {**formats, 11: "q", 12: "d"}.items()
    ]
    entries += [gb.entry("yes", gb.BOOL, b"\x01"), gb.text("t", "\u00e9")]
    header = read_bytes(tmp_path / "f", gb.gguf(entries))
    values = {key: entry.value for key, entry in header.entries.items()}
    numbers = {f"k{kind}": 3 for kind in (*formats, 11, 12)}
    assert values == {**numbers, "yes": True, "t": "\u00e9"}


def test_an_array_is_a_range_of_the_file(tmp_path: Path) -> None:
    data = gb.gguf([gb.u32("a", 1), gb.u32_array("k", [5, 6, 7]), gb.u32("b", 2)])
    entry = read_bytes(tmp_path / "f", data).entries["k"]
    assert (entry.kind, entry.element_kind) == (ValueKind.ARRAY, ValueKind.UINT32)
    assert entry.value is None
    assert data[entry.start : entry.end] == gb.u32_array("k", [5, 6, 7])
    elements = data[entry.data_start : entry.end]
    assert struct.unpack("<3I", elements) == (5, 6, 7)


def test_empty_arrays_are_kept(tmp_path: Path) -> None:
    header = read_bytes(tmp_path / "f", gb.gguf([gb.text_array("k", [])]))
    assert header.entries["k"].count == 0


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_are_read(tmp_path: Path, version: int) -> None:
    assert read_bytes(tmp_path / "f", gb.gguf(version=version)).version == version


def test_text_that_is_not_utf_8_does_not_refuse_a_model(tmp_path: Path) -> None:
    header = read_bytes(tmp_path / "f", gb.gguf([gb.text("t", b"caf\xe9")]))
    assert header.entries["t"].value == "caf\ufffd"


def test_tensors_lie_behind_the_header_at_the_files_alignment(tmp_path: Path) -> None:
    entries = [gb.u32("general.alignment", 64)]
    rows = [ROW, gb.tensor_row("b", (32, 2), kind=2, offset=128)]
    data = gb.gguf(entries, rows, bytes(128 + 36), alignment=64)
    first, second = read_bytes(tmp_path / "f", data).tensors
    assert (first.file_offset, first.nbytes) == (len(data) - 164, 128)
    assert (second.file_offset, second.nbytes) == (len(data) - 36, 36)
    assert first.file_offset % 64 == 0
    assert second.type.name == "q4_0"
    assert second.shape == (32, 2)


def test_the_last_tensor_needs_no_padding(tmp_path: Path) -> None:
    data = gb.gguf([], [gb.tensor_row("a", (1,))], bytes(4))
    assert read_bytes(tmp_path / "f", data).tensors[0].nbytes == 4


@pytest.mark.slow
def test_a_vocabulary_of_450_000_strings_is_skipped_quickly(tmp_path: Path) -> None:
    tokens = gb.text_array("tokens", [f"token{i}" for i in range(150_000)])
    merges = gb.text_array("merges", [f"a{i} b{i}" for i in range(300_000)])
    path = tmp_path / "f"
    path.write_bytes(gb.gguf([tokens, merges]))
    started = time.process_time()
    header = read(path)
    assert time.process_time() - started < 0.6
    assert header.entries["merges"].count == 300_000
