"""The TLS table of a stage: its rules, and that it reads back as written."""

from __future__ import annotations

import pytest

from skippyd.config.complaints import InvalidConfigError
from skippyd.config.stage import stage_config, stage_document
from support.stage_json import REQUIRED


KEYED: dict[str, object] = {"transport_auth": "5a" * 32}


def tls_of(
    count: int, *, first: int = 0, node_id: str = "5a" * 32, key_path: str = "k.pem"
) -> dict[str, object]:
    """A table of so many stages; the last one has the node id."""
    return {
        "certificate_path": "c.pem",
        "key_path": key_path,
        "peers": [
            {
                "stage_index": first + index,
                "node_id": node_id if index == count - 1 else "00" * 32,
                "certificate": "a certificate",
            }
            for index in range(count)
        ],
    }


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"tls": tls_of(2)}, "tls", "needs transport_auth"),
        (
            KEYED | {"tls": tls_of(1)},
            "tls.peers",
            "lists 1 stage; the chain goes on to 1",
        ),
        (
            KEYED | {"tls": tls_of(2, first=1)},
            "tls.peers",
            "list every stage of the chain once, in order",
        ),
        (
            KEYED | {"tls": tls_of(2, node_id="ab")},
            "tls.peers[1].node_id",
            "the text 'ab' is no node id",
        ),
        (
            KEYED | {"tls": tls_of(2, key_path="")},
            "tls.key_path",
            "is empty; name a PEM file",
        ),
    ],
)
def test_each_rule_names_its_field_and_the_way_out(
    changes: dict[str, object], path: str, text: str
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        stage_config({**REQUIRED, **changes}, source="s")
    (complaint,) = caught.value.complaints
    assert complaint.path == path
    assert complaint.text.startswith(text)


def test_a_tls_table_reads_back_as_written() -> None:
    config = stage_config({**REQUIRED, **KEYED, "tls": tls_of(3)}, source="s")
    assert config.tls is not None
    assert config.tls.peers[2].certificate == "a certificate"
    assert stage_config(stage_document(config), source="s") == config
