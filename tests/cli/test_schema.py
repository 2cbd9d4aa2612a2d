"""`voicebench schema`."""

from __future__ import annotations

import json

import pytest

from voicebench.cli import main
from voicebench.scenario.schema import json_schema


@pytest.mark.parametrize("kind", ["scenario", "plan"])
def test_each_kind_of_file_has_its_schema(kind, capsys):
    assert main(["schema", kind]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema(kind)


def test_without_a_kind_the_schema_is_for_both(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_another_kind_is_refused(capsys):
    assert main(["schema", "bundle"]) == 2
    assert "bundle" in capsys.readouterr().err
