"""A load becomes the documents of its stage, or a refusal that names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.config.complaints import InvalidConfigError
from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import stage_config
from skippyd.config.topology import check_stage_in_topology, stage_topology
from skippyd.coordination.admission import package_ref
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from skippyd.coordination.stage_documents import (
    ChainTrust,
    StagePlace,
    chain_tls,
    check_load,
    stage_config_of,
    stage_documents,
)
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from skippyd.net.tls import OwnCertificate
from support.claims import KEY, changed, claim, load_of


if TYPE_CHECKING:
    from skippyd.core.coordinator.messages import LoadStage


DIGEST = "ab" * 32
SETTINGS = StageRunSettings(
    model_sha256=DIGEST,
    model_id="org/model",
    ctx_size=4096,
    lane_count=3,
    cache_type_k="q8_0",
    flash_attn_type="enabled",
    run_key="5a" * 32,
    stages=tuple(
        StageEndpoint(
            stage_id=f"stage-{index}",
            stage_index=index,
            node_id=NodeId(f"node-{index}"),
            layer_start=10 * index,
            layer_end=10 * index + 10,
            host="127.0.0.2",
            port=0 if index == 0 else 19_000 + index,
        )
        for index in range(3)
    ),
    serves_openai=True,
)
PLACE = StagePlace(
    model_path=Path("/models/m.gguf"), host="127.0.0.1", port=18_000, n_threads=2
)


def load(index: int) -> LoadStage:
    key = changed(KEY, package_ref=package_ref(DIGEST), manifest_sha256=DIGEST)
    made = load_of(claim(key=key), stage=f"stage-{index}")
    return attrs.evolve(
        made,
        stage_index=index,
        layer_start=10 * index,
        layer_end=10 * index + 10,
        source_model_sha256=DIGEST,
    )


def test_a_middle_stage_reads_a_configuration_only() -> None:
    documents = stage_documents(load(1), SETTINGS, PLACE)

    assert set(documents) == {"--config"}
    config = stage_config(json.loads(documents["--config"]), source="stage.json")
    assert config == stage_config_of(load(1), SETTINGS, PLACE)
    assert config.bind_addr == Endpoint("127.0.0.1", 18_000)
    assert config.transport_auth == bytes.fromhex("5a" * 32)
    assert config.downstream is not None
    assert config.downstream.endpoint == Endpoint("127.0.0.2", 19_002)
    assert (config.ctx_size, config.lane_count, config.n_threads) == (4096, 3, 2)
    assert (config.cache_type_k, config.flash_attn_type) == ("q8_0", "enabled")
    assert config.model_path == "/models/m.gguf"


def test_the_last_stage_has_nobody_below_it() -> None:
    assert stage_config_of(load(2), SETTINGS, PLACE).downstream is None


def test_stage_0_knows_the_whole_chain_with_its_own_real_port() -> None:
    documents = stage_documents(load(0), SETTINGS, PLACE)

    config = stage_config(json.loads(documents["--config"]), source="stage.json")
    topology = stage_topology(json.loads(documents["--topology"]), source="topology")
    check_stage_in_topology(config, topology)
    assert [str(stage.endpoint) for stage in topology.stages] == [
        "127.0.0.1:18000",
        "127.0.0.2:19001",
        "127.0.0.2:19002",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backend": "other"}, "backend 'other' is not offered"),
        ({"source_model_sha256": None}, "send one model"),
        ({"stage_index": 3}, "settings list 3 stages"),
        ({"stage_index": -1}, "settings list 3 stages"),
        ({"layer_end": 19}, r"\('stage-1', 1, 10, 19\), its settings list"),
    ],
)
def test_a_load_that_contradicts_its_settings_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        check_load(changed(load(1), **fields), SETTINGS)


def test_a_load_finds_its_own_entry() -> None:
    assert check_load(load(1), SETTINGS) is SETTINGS.stages[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"run_key": ""}, "run key is not 32 bytes"),
        ({"run_key": "zz" * 32}, "run key is not 32 bytes"),
        ({"cache_type_v": "q1"}, "cache type 'q1' is not one of f32, f16"),
        ({"flash_attn_type": "on"}, "flash_attn_type 'on' is not one of auto"),
    ],
)
def test_settings_that_no_stage_takes_are_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        stage_documents(load(1), changed(SETTINGS, **fields), PLACE)


def test_a_stage_below_without_a_port_is_refused() -> None:
    stages = tuple(attrs.evolve(stage, port=0) for stage in SETTINGS.stages)
    early = attrs.evolve(SETTINGS, stages=stages)

    with pytest.raises(RefusedError, match="port of stage-2 is not known yet"):
        stage_documents(load(1), early, PLACE)


def test_values_out_of_range_are_complained_about_by_name() -> None:
    with pytest.raises(InvalidConfigError, match="ctx_size"):
        stage_documents(load(1), attrs.evolve(SETTINGS, ctx_size=0), PLACE)


def test_a_refused_key_is_not_shown() -> None:
    with pytest.raises(RefusedError) as caught:
        stage_documents(load(1), attrs.evolve(SETTINGS, run_key="5b5b"), PLACE)

    assert "5b5b" not in str(caught.value)


def chain(*hosts: str) -> StageRunSettings:
    stages = tuple(
        attrs.evolve(SETTINGS.stages[index], host=host, node_id=NodeId(f"{index}" * 64))
        for index, host in enumerate(hosts)
    )
    return attrs.evolve(SETTINGS, stages=stages)


def trusting(*node_ids: str) -> ChainTrust:
    return ChainTrust(
        own=OwnCertificate(
            certificate_path=Path("/state/identity.pem"),
            key_path=Path("/state/identity.key"),
        ),
        certificate_of=lambda node_id: (
            f"certificate of {node_id[0]}" if node_id[0] in node_ids else None
        ),
    )


def test_a_chain_off_loopback_speaks_tls_by_the_nodes_certificates() -> None:
    settings = chain("127.0.0.1", "192.0.2.2", "127.0.0.1")
    place = attrs.evolve(PLACE, trust=trusting("0", "1", "2"))
    documents = stage_documents(load(1), settings, place)

    config = stage_config(json.loads(documents["--config"]), source="stage.json")
    assert config.tls is not None
    assert config.tls.certificate_path == "/state/identity.pem"
    assert config.tls.key_path == "/state/identity.key"
    assert [
        (peer.stage_index, peer.node_id[0], peer.certificate)
        for peer in config.tls.peers
    ] == [(i, f"{i}", f"certificate of {i}") for i in range(3)]


def test_loopback_and_wanted_plaintext_stay_plain() -> None:
    near, far = chain("127.0.0.1", "::1", "127.0.0.9"), chain("192.0.2.1", "::1")
    assert chain_tls(near, trusting("0", "1", "2")) is None
    assert chain_tls(far, None) is None


def test_a_node_that_is_not_trusted_here_is_named_with_the_remedy() -> None:
    with pytest.raises(RefusedError, match=r"stage-1 is on node 1{64}, .*join"):
        chain_tls(chain("192.0.2.1", "192.0.2.2"), trusting("0"))
