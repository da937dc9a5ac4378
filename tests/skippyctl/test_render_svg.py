from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from skippyctl.planning import Outcome, Refused, Wishes, plan_from_files
from skippyctl.render_svg import COLOURS, plan_svg
from support.nodes_files import QWEN, nodes, write_nodes


if TYPE_CHECKING:
    from pathlib import Path


SVG = "{http://www.w3.org/2000/svg}"


def drawn(outcome: Outcome) -> ET.Element:
    return ET.fromstring(plan_svg(outcome))


def plan(folder: Path, text: str) -> Outcome:
    return plan_from_files(write_nodes(folder, text), Wishes())


def words(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def widths(picture: ET.Element, colour: str) -> list[int]:
    found = picture.iter(f"{SVG}rect")
    return [int(r.attrib["width"]) for r in found if r.attrib["fill"] == colour][1:]


def test_a_map_has_a_bar_for_each_stage_and_the_reasons(tmp_path: Path) -> None:
    picture = drawn(plan(tmp_path, QWEN + nodes(*["80GiB"] * 5)))

    assert widths(picture, COLOURS["weights"])[0] == 401
    assert len(widths(picture, COLOURS["weights"])) == 5
    assert widths(picture, COLOURS["missing"]) == [0] * 5
    assert "layers 0..13 (13)" in words(picture)
    assert "11.6 GiB left" in words(picture)
    assert any(line.startswith("context: 262,144 tokens") for line in words(picture))


def test_a_refusal_shows_what_is_short(tmp_path: Path) -> None:
    picture = drawn(plan(tmp_path, QWEN + nodes(*["70GiB"] * 4)))

    assert min(widths(picture, COLOURS["missing"])) > 0
    assert "7.94 GiB short" in words(picture)
    assert any("add a node with 29.3 GiB usable" in line for line in words(picture))
    assert max(map(len, words(picture))) <= 125


def test_names_from_files_stay_text(tmp_path: Path) -> None:
    text = QWEN.replace("qwen-480b", "a<b>&amp;")
    outcome = plan(tmp_path, text + nodes(*["80GiB"] * 5).replace('"n0"', "'<n0>'"))
    found = words(drawn(outcome))

    assert found[0].startswith("a<b>&amp;: 62 layers")
    assert "0  <n0>" in found


def test_a_map_points_nowhere_else(tmp_path: Path) -> None:
    text = plan_svg(plan(tmp_path, QWEN + nodes(*["80GiB"] * 5)))
    assert text.count("://") == 1  # the name space
    assert "<script" not in text


def test_a_refusal_with_nothing_to_draw_is_still_a_picture() -> None:
    refused = Refused(name="NotOffered", message="no " * 200)
    picture = drawn(Outcome(model_name="m", refused=refused))
    assert words(picture)[0] == "m"
