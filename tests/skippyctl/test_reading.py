from __future__ import annotations

import attrs
import pytest

from skippyctl.reading import UnknownAnswerError, read, written
from skippyd.admin import schema
from skippyd.config.convert import unstructure
from support.admin_documents import DEPLOYMENT, degraded, node_rows, serving


VALUES: tuple[object, ...] = (
    serving(),
    degraded(),
    schema.Nodes(items=node_rows()),
    schema.Events(items=DEPLOYMENT, missed=2),
    schema.SpanRow(
        sequence=1, name="n", start_unix_ms=1, elapsed_us=2, attributes={"a": "b"}
    ),
)


def jsonlike(value: object) -> object:
    match value:
        case dict():
            return {key: jsonlike(each) for key, each in value.items()}
        case tuple() | list():
            return [jsonlike(each) for each in value]
        case _:
            return value


@pytest.mark.parametrize("value", VALUES)
def test_what_the_daemon_writes_is_read(value: object) -> None:
    document = jsonlike(unstructure(value))
    assert read(document, type(value), source="test") == value
    assert jsonlike(written(value)) == document


def test_keys_of_a_newer_daemon_are_left_out() -> None:
    document = {"schema": "skippy.done/1", "message": "m", "colour": "blue"}
    assert read(document, schema.Done, source="test") == schema.Done(message="m")


def test_a_whole_number_is_a_rate_too() -> None:
    @attrs.frozen
    class Rate:
        value: float

    assert read({"value": 3}, Rate, source="test") == Rate(3.0)


@pytest.mark.parametrize(
    ("document", "type_", "where"),
    [
        ([], schema.Done, "test: expected an object"),
        ({}, schema.Done, "test.message is missing"),
        ({"message": 3}, schema.Done, "test.message: expected str"),
        ({"message": None}, schema.Done, "test.message: expected str"),
        ({"items": {}}, schema.Claims, "test.items: expected a list"),
        ({"items": [{}]}, schema.Claims, r"test.items\[0\].model_id is missing"),
        (
            {"model_id": "m", "after": True},
            schema.Deployment,
            "test.after: expected int",
        ),
        (
            {"model_id": "m", "after": "1"},
            schema.Deployment,
            "test.after: expected int",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(
    document: object, type_: type, where: str
) -> None:
    with pytest.raises(UnknownAnswerError, match=where) as raised:
        read(document, type_, source="test")
    assert "restart skippyd" in str(raised.value)


@pytest.mark.parametrize("attributes", [[], {"a": 1}])
def test_attributes_are_texts(attributes: object) -> None:
    document = {
        "sequence": 1,
        "name": "n",
        "start_unix_ms": 1,
        "elapsed_us": 2,
        "attributes": attributes,
    }
    with pytest.raises(UnknownAnswerError, match=r"test\.attributes"):
        read(document, schema.SpanRow, source="test")
