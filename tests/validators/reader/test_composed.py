"""A composed configuration as a table of settings, with what they refer to."""

from __future__ import annotations

import pytest

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.reader.composed import settings_in, targets_in
from megatron_hcp.validators.reader.prune import read_settings

TEXT = """
actor:
  _target_: pkg.config.ActorConfig
  optim: {_target_: pkg.config.Optimizer, lr: 1.0e-06}
  batch: ${oc.select:data.batch,null}
  contents: [model, extra]
  load: ${.contents}
  beside: ${..name}
  path: out/${name}
  must: ???
  more: {}
name: null
"""


def test_settings_have_their_defaults_or_what_they_refer_to() -> None:
    assert settings_in(TEXT) == [
        "actor._target_\t'pkg.config.ActorConfig'",
        "actor.optim._target_\t'pkg.config.Optimizer'",
        "actor.optim.lr\t1e-06",
        "actor.batch\t@data.batch\tNone",
        "actor.contents\t['model', 'extra']",
        "actor.load\t@actor.contents\t...",
        "actor.beside\t@name\t...",
        "actor.path\t...",
        "actor.must\t...",
        "actor.more\t{}",
        "name\tNone",
    ]


def test_the_classes_of_a_section_are_those_below_it() -> None:
    lines = settings_in(TEXT)
    assert targets_in(lines, ("actor",)) == ["pkg.config.ActorConfig", "pkg.config.Optimizer"]
    assert targets_in(lines, ("actor.optim",)) == ["pkg.config.Optimizer"]


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: [\n", "a: b: c\n"])
def test_what_is_no_configuration_has_no_settings(text: str) -> None:
    assert settings_in(text) == []


def test_only_settings_that_a_function_may_read_are_kept_and_what_those_refer_to() -> None:
    units = {
        "f": Unit("f", "def", ("self",), "", ("check self.load == 1\t",)),
        "ActorConfig": Unit("ActorConfig", "class", (), "", ("lr = 0.1",)),
    }
    kept = [line.partition("\t")[0] for line in read_settings(settings_in(TEXT), units)]
    assert kept == ["actor._target_", "actor.contents", "actor.load"]
