from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyctl.planning import Outcome, Wishes, plan_from_files
from skippyd.errors import UsageError
from support.nodes_files import BASE, QWEN, nodes, write_nodes
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from pathlib import Path


def plan(folder: Path, text: str, wishes: Wishes | None = None) -> Outcome:
    return plan_from_files(write_nodes(folder, text), wishes or Wishes())


def tiny(folder: Path, *, tied: bool = True, vocabulary: int = 320) -> None:
    write_random_model(
        folder / "tiny.gguf", RandomModel(tied=tied, vocab_size=vocabulary)
    )


TINY = '[model]\npath = "tiny.gguf"\n'


def test_latencies_and_target_are_taken_to_the_microsecond(tmp_path: Path) -> None:
    text = BASE + "[plan]\ntarget_tpot_ms = 0.25\n"
    outcome = plan(tmp_path, text + nodes("80GiB", more="latency_ms = 0.1254"))

    assert outcome.request is not None
    assert outcome.request.nodes[0].latency_us == 125
    assert outcome.request.target_tpot_us == 250
    assert outcome.plan is not None
    assert outcome.plan.target_met is True


def test_a_cap_on_the_command_line_replaces_the_files(tmp_path: Path) -> None:
    text = BASE + nodes("80GiB", more='max_vram = "70GiB"\nheadroom = "1GiB"')

    def usable(max_vram: str | None) -> int:
        request = plan(tmp_path, text, Wishes(max_vram=max_vram)).request
        assert request is not None
        return request.nodes[0].usable_bytes

    assert usable(None) == 69 * 2**30
    assert usable("75GiB") == 74 * 2**30
    assert usable(str(60 * 2**30)) == 59 * 2**30


def test_a_plan_brings_its_reasons(tmp_path: Path) -> None:
    outcome = plan(tmp_path, QWEN + nodes(*["80GiB"] * 5))

    assert outcome.model_name == "qwen-480b"
    assert outcome.explanation is not None
    assert outcome.explanation.fewer_nodes is not None
    assert outcome.refused is None
    assert outcome.outside is None


def test_a_refusal_brings_its_numbers(tmp_path: Path) -> None:
    refused = plan(tmp_path, QWEN + nodes(*["70GiB"] * 4)).refused

    assert refused is not None
    assert refused.name == "NoValidTopology"
    assert len(refused.nearest) == 4
    shortfalls = refused.numbers["shortfalls"]
    assert isinstance(shortfalls, list)
    assert shortfalls[0] == {
        "node_id": "n0",
        "layer_start": 0,
        "layer_end": 16,
        "needed_bytes": 16 * 5_230_221_544,
        "usable_bytes": 70 * 2**30,
        "missing_bytes": 16 * 5_230_221_544 - 70 * 2**30,
    }


def test_a_models_real_bytes_are_in_its_stages(tmp_path: Path) -> None:
    """320 rows of 64 f32 are on both ends of a tied model."""
    tiny(tmp_path)
    text = TINY + "[plan]\nmin_nodes = 3\n"
    outcome = plan(tmp_path, text + nodes(*["64MiB"] * 3))

    assert outcome.plan is not None
    first, middle, last = (s.parameter_bytes for s in outcome.plan.stages)
    assert first - middle == last - middle == 320 * 64 * 4 - 64 * 4
    assert outcome.outside is not None
    assert outcome.model_name == "tiny"


def test_an_id_names_a_model_file(tmp_path: Path) -> None:
    tiny(tmp_path)
    text = TINY + 'id = "my-model"\n' + nodes("64MiB")
    wishes = Wishes(model_path=tmp_path / "tiny.gguf")

    assert plan(tmp_path, text).model_name == "my-model"
    assert plan(tmp_path, text, wishes).model_name == "tiny"


@pytest.mark.parametrize(
    ("tied", "sizes", "matrix", "node"),
    [
        (True, ["9MiB"], "token_embd.weight", "n0"),
        (False, ["15MiB", "9MiB"], "output.weight", "n1"),
    ],
)
def test_a_matrix_that_does_not_load_is_refused_by_name(
    tmp_path: Path,
    tied: bool,
    sizes: list[str],
    matrix: str,
    node: str,
) -> None:
    """Each matrix has 9.77 MiB; a chain of two has one on each node."""
    tiny(tmp_path, tied=tied, vocabulary=40_000)
    text = TINY + f"[plan]\nmin_nodes = {len(sizes)}\n"
    outcome = plan(tmp_path, text + nodes(*sizes))

    assert outcome.plan is None
    assert outcome.refused is not None
    assert outcome.refused.name == "TensorDoesNotFit"
    assert outcome.refused.numbers["tensor"] == matrix
    assert outcome.refused.numbers["node_id"] == node
    assert matrix in outcome.refused.message


def test_cache_types_change_the_cache(tmp_path: Path) -> None:
    tiny(tmp_path)

    def kv(more: str) -> int:
        outcome = plan(tmp_path, TINY + f"[plan]\n{more}\n" + nodes("64MiB"))
        assert outcome.request is not None
        return outcome.request.model.kv_bytes_per_token

    assert kv("") == 6 * 2 * 32 * 2
    assert kv('cache_type_k = "f32"') == 6 * (32 * 4 + 32 * 2)
    assert kv('cache_type_v = "q8_0"') == 6 * (32 * 2 + 34)


def test_an_architecture_that_is_not_offered_is_refused_by_name(
    tmp_path: Path,
) -> None:
    tiny(tmp_path)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(path.read_bytes().replace(b"llama", b"lammo"))
    refused = plan(tmp_path, TINY + nodes("64MiB")).refused

    assert refused is not None
    assert refused.name == "NotOffered"
    assert "architecture 'lammo' is not offered" in refused.message


def test_a_model_that_lacks_what_is_needed_names_the_file(tmp_path: Path) -> None:
    tiny(tmp_path)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(
        path.read_bytes().replace(b"llama.context_length", b"llama.context_depths")
    )
    with pytest.raises(UsageError, match=r"tiny\.gguf: .*context_length"):
        plan(tmp_path, TINY + nodes("64MiB"))


def test_a_model_of_the_command_line_needs_no_section(tmp_path: Path) -> None:
    tiny(tmp_path)
    wishes = Wishes(model_path=tmp_path / "tiny.gguf")
    assert plan(tmp_path, nodes("64MiB"), wishes).plan is not None

    with pytest.raises(UsageError, match="there is no model; write"):
        plan(tmp_path, nodes("64MiB"))
