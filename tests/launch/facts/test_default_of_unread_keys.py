"""A framework's default holds for no key that the framework has and hcp doesn't read."""

from __future__ import annotations

from megatron_hcp.launch.dialects.known_keys import is_known
from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of
from megatron_hcp.launch.facts.spec import UNKNOWN
from support.rows import rows

SET_ALONE = {"calculate_per_token_loss"}
"""What NeMo-RL sets whatever its configuration says: `_validate_training_config`, nemo_rl/models/megatron/setup.py."""


@rows("name", sorted(name for name, spec in FACTS.items() if spec.mlm))
def test_an_argument_of_ms_swift_is_read_where_its_absence_says_something(name: str) -> None:
    spec = FACTS[name]
    known = [key for key in (*spec.mlm, *spec.mlm_not) if is_known("ms-swift", key)]
    read = [key for key, entry in index_of("ms-swift").items() if entry.fact == name]
    assert read or not known or default_of(spec, "ms-swift") is UNKNOWN


@rows("name", sorted({*FACTS} - SET_ALONE))
def test_a_model_field_that_nemo_rl_has_as_a_setting_of_its_own_is_read_there(name: str) -> None:
    fields = [key.partition(".")[2] for key in FACTS[name].bridge if key.startswith("model.") and "_target_" not in key]
    own = {f"policy.megatron_cfg.{field}" for field in fields}
    known = {key for key in own if is_known("nemo-rl", key)}
    assert known <= index_of("nemo-rl").keys()
