"""The report as JSON, and its schema."""

from __future__ import annotations

import json
from typing import Any

from attrs import fields_dict
from jsonschema import Draft202012Validator

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.report.json_report import FORMAT, SCHEMA, check_json, json_text
from kvcanon.conformance.report.report import CheckReport
from kvcanon.spec.law import LAWS
from sample_reports import sound

VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_schema_is_a_schema() -> None:
    """The published schema is a valid JSON Schema."""
    Draft202012Validator.check_schema(VALIDATOR.schema)


def test_json_is_as_its_schema_says(report: CheckReport) -> None:
    """The JSON of reports is valid by the schema."""
    for each in (report, sound()):
        VALIDATOR.validate(json.loads(json_text(check_json(each))))


def test_schema_leaves_nothing_open(report: CheckReport) -> None:
    """The schema allows no further fields, and requires all but five fields of a case."""

    def objects(value: Any) -> Any:  # noqa: ANN401 # JSON
        if isinstance(value, dict):
            yield from [value] if "properties" in value else []
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from objects(each)

    optional = {"unobserved", "one_namespace", "ranks", "rank_apart", "store"}
    found = list(objects(VALIDATOR.schema))
    assert len(found) > 8
    for each in found:
        assert each["additionalProperties"] is False
        assert set(each["properties"]) - optional == set(each["required"])
    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    assert set(definitions["case"]["properties"]) == {*fields_dict(Case)}
    value = json.loads(json_text(check_json(report)))
    value["caches"][0]["failures"][0]["more"] = 1
    assert not VALIDATOR.is_valid(value)


def test_json_has_what_the_text_has(report: CheckReport) -> None:
    """The JSON has verdict, seed, counts, laws, operations, cases, calls and scripts."""
    value = json.loads(json_text(check_json(report)))
    assert value["format"] == FORMAT == "kvcanon-check/6"
    assert (value["verdict"], value["seed"], value["against"]) == ("broken", 7, "reference")
    cache = value["caches"][0]
    counts = {"held": len(LAWS) - 3, "broken": 1, "not kept": 0, "known": 1, "not exercised": 1}
    assert cache["counts"] == counts
    assert [law["id"] for law in cache["laws"]] == list(LAWS)
    tree = cache["laws"][0]
    assert (tree["times"], tree["stages"]) == (9, {"vectors": 2, "walker": 7})
    assert [law["address"] for law in cache["laws"]] == [law.address for law in LAWS.values()]
    assert tree["premise"] == LAWS["TREE-1"].premise.words
    assert {"name": "insert", "served": 9, "refused": 1} in cache["operations"]
    (failure,) = cache["failures"]
    assert failure["broken"] == ["LOCK-8"]
    assert failure["case"]["actions"] == [["serve", 0, 0, 0]]
    assert failure["calls"][-1]["code"] == "cache.unlock(receipt_1)"
    assert failure["script"].startswith('"""LOCK-8')
