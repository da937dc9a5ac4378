from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from skippyd.config.nodes import (
    ModelSection,
    NodesDocument,
    NodeSection,
    PlanSection,
    load_nodes,
    nodes_document,
)
from skippyd.config.sizes import SizeBytes
from skippyd.config.stage import CacheType
from skippyd.errors import ConfigError
from skippyd.ids import ModelId, NodeId
from skippyd.units import GIB
from support.tree import ROOT


if TYPE_CHECKING:
    from pathlib import Path


FACTS = """
[model]
id = "base"
native_context = 65536
layers = 2
weight_bytes = "2GiB"
kv_bytes_per_token = 65536
"""
NODE = """
[[nodes]]
id = "a"
vram = "80GiB"
"""


def read(text: str) -> NodesDocument:
    document: dict[str, Any] = tomllib.loads(text)
    return nodes_document(document, source="nodes.toml")


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value).splitlines()


def test_the_example_reads() -> None:
    document = load_nodes(ROOT / "etc" / "nodes.example.toml")

    assert len(document.nodes) == 5
    assert document.model is not None
    assert document.model.layers == 62


def test_every_key_is_read() -> None:
    document = read(
        FACTS
        + 'layer_weight_bytes = ["1GiB", 7]\n'
        + """
[plan]
min_nodes = 2
context = 65536
lanes = 3
target_tpot_ms = 33.5
cache_type_k = "q8_0"
cache_type_v = "f16"
[[nodes]]
id = "a"
vram = "80GiB"
max_vram = "24 GB"
headroom = 1
latency_ms = 0.25
"""
    )
    assert document == NodesDocument(
        model=ModelSection(
            id=ModelId("base"),
            native_context=65_536,
            layers=2,
            weight_bytes=SizeBytes(2 * GIB),
            kv_bytes_per_token=SizeBytes(65_536),
            layer_weight_bytes=(SizeBytes(GIB), SizeBytes(7)),
        ),
        plan=PlanSection(
            min_nodes=2,
            context=65_536,
            lanes=3,
            target_tpot_ms=33.5,
            cache_type_k=CacheType.Q8_0,
            cache_type_v=CacheType.F16,
        ),
        nodes=(
            NodeSection(
                id=NodeId("a"),
                vram=SizeBytes(80 * GIB),
                max_vram=SizeBytes(24 * 10**9),
                headroom=SizeBytes(1),
                latency_ms=0.25,
            ),
        ),
    )


def test_what_is_left_out_is_left_to_the_planner() -> None:
    document = read(NODE)

    assert document.model is None
    assert document.plan == PlanSection()
    assert document.nodes[0].headroom == 0
    assert document.nodes[0].max_vram is None
    assert document.nodes[0].latency_ms is None


def test_a_path_needs_no_facts() -> None:
    document = read('schema = "skippy.nodes/1"\n[model]\npath = "m.gguf"\n' + NODE)
    assert document.model == ModelSection(path="m.gguf")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            FACTS + "layrs = 3\n" + NODE,
            "model.layrs: unknown key; did you mean layers?",
        ),
        (
            NODE + "latency = 3\n",
            "nodes[0].latency: unknown key; did you mean latency_ms?",
        ),
        (NODE + "vrm = 3\n", "nodes[0].vrm: unknown key; did you mean vram?"),
        (NODE + "[paln]\n", "paln: unknown key; did you mean plan?"),
        (
            'schema = "x"\n' + NODE,
            "schema: expected 'skippy.nodes/1', found the text 'x'",
        ),
        ("nodes = 3\n", "nodes: expected a list, found the number 3"),
        ("", "nodes: there is none; write at least one [[nodes]]"),
        (
            NODE + NODE,
            "nodes[1].id: a is the id of nodes[0] too; give each node its own",
        ),
        (
            '[[nodes]]\nid = "a"\nvram = -4\n',
            "nodes[0].vram: the number -4 is outside 0 to 9223372036854775807 bytes",
        ),
        (
            '[[nodes]]\nid = "a"\nvram = 0\n',
            "nodes[0].vram: 0 bytes is outside 1 to 1125899906842624 bytes (1024 TiB)",
        ),
        (
            '[[nodes]]\nid = "a"\nvram = "1025TiB"\n',
            (
                "nodes[0].vram: 1126999418470400 bytes is outside 1 to 1125899906842624 "
                "bytes (1024 TiB)"
            ),
        ),
        (
            NODE + "max_vram = 0\n",
            (
                "nodes[0].max_vram: 0 bytes is outside 1 to 1125899906842624 bytes "
                "(1024 TiB)"
            ),
        ),
        (
            NODE + 'headroom = "2000TiB"\n',
            (
                "nodes[0].headroom: 2199023255552000 bytes is outside 0 to "
                "1125899906842624 bytes (1024 TiB)"
            ),
        ),
        (
            NODE + "latency_ms = nan\n",
            "nodes[0].latency_ms: expected a finite number, found the number nan",
        ),
        (
            NODE + "latency_ms = inf\n",
            "nodes[0].latency_ms: expected a finite number, found the number inf",
        ),
        (
            NODE + "latency_ms = -0.5\n",
            "nodes[0].latency_ms: -0.5 is outside 0 to 3600000",
        ),
        (
            NODE + "latency_ms = 3600001\n",
            "nodes[0].latency_ms: 3600001.0 is outside 0 to 3600000",
        ),
        (
            '[[nodes]]\nid = ""\nvram = 4\n',
            (
                "nodes[0].id: the text '' is not an identifier; write 1 to 256 printable "
                "characters"
            ),
        ),
        (
            '[[nodes]]\nid = "\\u001b[31m"\nvram = 4\n',
            (
                "nodes[0].id: the text '\\x1b[31m' is not an identifier; write 1 to 256 "
                "printable characters"
            ),
        ),
        (NODE + "[plan]\nmin_nodes = 0\n", "plan.min_nodes: 0 is outside 1 to 1024"),
        (
            NODE + "[plan]\ncontext = -1\n",
            "plan.context: -1 is outside 0 to 2147483647",
        ),
        (NODE + "[plan]\nlanes = -1\n", "plan.lanes: -1 is outside 0 to 2147483647"),
        (
            NODE + "[plan]\ntarget_tpot_ms = -1\n",
            "plan.target_tpot_ms: -1.0 is outside 0 to 3600000",
        ),
        (
            NODE + '[plan]\ncache_type_k = "f17"\n',
            (
                "plan.cache_type_k: expected one of f32, f16, bf16, q8_0, q5_1, q5_0, "
                "q4_1, q4_0, iq4_nl, found the text 'f17'"
            ),
        ),
        (
            NODE + "[model]\nlayers = 3\nweight_bytes = 4\n",
            (
                "model: native_context, kv_bytes_per_token missing; write them, or path to a "
                "GGUF file"
            ),
        ),
        (
            NODE + '[model]\npath = "x"\nlayers = 3\n',
            "model.layers: is read from the file at path; remove one of both",
        ),
        (
            NODE + '[model]\npath = "x"\nlayer_weight_bytes = []\n',
            "model.layer_weight_bytes: is read from the file at path; remove one of both",
        ),
        (
            NODE + '[model]\npath = ""\n',
            "model.path: is empty; write the path of a GGUF file",
        ),
        (
            FACTS.replace('"base"', '""') + NODE,
            (
                "model.id: the text '' is not an identifier; write 1 to 256 printable "
                "characters"
            ),
        ),
        (
            FACTS.replace("layers = 2", "layers = 0") + NODE,
            "model.layers: 0 is outside 1 to 4096",
        ),
        (
            FACTS.replace("layers = 2", "layers = 5000") + NODE,
            "model.layers: 5000 is outside 1 to 4096",
        ),
        (
            FACTS.replace("native_context = 65536", "native_context = 0") + NODE,
            "model.native_context: 0 is outside 1 to 2147483647",
        ),
        (
            FACTS.replace('"2GiB"', "0") + NODE,
            (
                "model.weight_bytes: 0 bytes is outside 1 to 1125899906842624 bytes "
                "(1024 TiB)"
            ),
        ),
        (
            FACTS.replace("token = 65536", 'token = "2GiB"') + NODE,
            (
                "model.kv_bytes_per_token: 2147483648 bytes is outside 1 to 1073741824 bytes "
                "(1.00 GiB)"
            ),
        ),
        (
            FACTS + "layer_weight_bytes = [1, 2, 3]\n" + NODE,
            "model.layer_weight_bytes: has 3 sizes for 2 layers; write one for each",
        ),
        (
            FACTS + 'layer_weight_bytes = [1, "3000TiB"]\n' + NODE,
            (
                "model.layer_weight_bytes[1]: 3298534883328000 bytes is outside 0 to "
                "1125899906842624 bytes (1024 TiB)"
            ),
        ),
        (
            FACTS.replace("2GiB", "2 gigs") + NODE,
            (
                "model.weight_bytes: the text '2 gigs' is not a size; write an integer of "
                "bytes or a number with one of KiB, MiB, GiB, TiB, KB, MB, GB, TB, as in "
                '"80GiB"'
            ),
        ),
        (
            FACTS.replace("layers = 2", "layers = true") + NODE,
            "model.layers: expected a whole number, found true",
        ),
    ],
)
def test_a_slip_is_named_with_its_place_and_remedy(text: str, expected: str) -> None:
    assert complaints(text) == [f"nodes.toml: {expected}"]


def test_layer_weights_without_a_count_are_not_compared_with_it() -> None:
    found = complaints("[model]\nlayer_weight_bytes = [1]\n" + NODE)
    assert len(found) == 1
    assert (
        "native_context, layers, weight_bytes, kv_bytes_per_token missing" in found[0]
    )


def test_all_slips_are_reported_at_once() -> None:
    found = complaints(
        '[model]\nlayrs = 1\n[[nodes]]\nid = "a"\nvrm = 3\nlatency_ms = nan\n'
    )
    assert len(found) == 4


def test_a_file_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "nodes.toml"
    path.write_text("[model]\npath =\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=rf"{path}: is not valid TOML: .*line 2"):
        load_nodes(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_nodes(tmp_path / "nodes.toml")
