"""What a launch that states no release would fail of in some: a warning that names them."""

from __future__ import annotations

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.possible import possible_releases
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.launch.facts.releases import RELEASES
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.rules.known.row import KNOWN
from megatron_hcp.rules.registry import RULES
from support.rows import rows
from support.rules import launch

MLA = "--multi-latent-attention --context-parallel-size 2 --num-attention-heads 16 --no-rope-fusion"
GQA = "--num-attention-heads 8 --num-query-groups 2 --group-query-attention"
MAMBA = "--hybrid-override-pattern M-M* --context-parallel-size 2"


def report(words: str, assumed: str = "") -> Report:
    return check_launch(launch("mlm", words, assumed), RULES)


def only_in(words: str, assumed: str = "") -> dict[str, Finding]:
    return {item.rule.id: item for item in report(words, assumed).findings if item.problem.only_in}


@rows(
    "rule_id, words, assumed, begins",
    [
        ("CP015", MLA, "mcore=0.16", "in Transformer Engine up to 2.4.0: "),
        ("KNOWN002", MAMBA, "", "in megatron-core up to 0.12.3: "),
        ("KNOWN029", "--num-layers 2", "nvrx=0.5.0", "in megatron-core 0.17.1 and newer: "),
    ],
)
def test_a_rule_that_lacks_only_a_release_says_in_which_it_is_an_error(
    rule_id: str, words: str, assumed: str, begins: str
) -> None:
    found = only_in(words, assumed)[rule_id]
    assert found.severity == "warning" and found.problem.message.startswith(begins)
    assert found.fixes == ()  # nothing could try one
    assert rule_id in {item.rule.id for item in report(words, assumed).not_checked}


@rows(
    "rule_id, words",
    [
        ("KNOWN002", MAMBA),
        (
            "CP008",
            f"{GQA} --tensor-model-parallel-size 4",
        ),
    ],
)
def test_releases_that_lack_an_option_of_the_launch_are_not_asked_about(rule_id: str, words: str) -> None:
    of = report(f"{words} --qk-clip")  # Megatron-LM has it from 0.16.0 on
    assert rule_id in only_in(words)
    assert rule_id not in {item.rule.id for item in of.findings} | {item.rule.id for item in of.not_checked}


def test_a_recipe_rules_out_the_releases_before_it() -> None:
    """Bridge v0.3.1 has no nemotron_3_super recipe, v0.4.0 has; its uv.lock pins megatron-core 0.17."""
    words = ("model.tensor_model_parallel_size=8",)
    (one,) = load_launches("", LoadOptions(words=words, recipe="nemotron_3_super_pretrain_config"))
    assert possible_releases(one, "bridge")[0] == "0.4.2" and possible_releases(one, "mcore")[0] == "0.16.1"
    assert possible_releases(one, "te") == RELEASES["te"]
    assert "CP008" not in {item.rule.id for item in check_launch(one, RULES).findings}


def test_such_a_warning_changes_no_verdict() -> None:
    of = report(MAMBA)
    assert only_in(MAMBA) and (of.verdict, of.failed()) == ("ok", False)


@rows(
    "why, words, assumed",
    [
        ("a stated release decides", MLA, "mcore=0.16 te=2.5"),
        ("so does one that nobody can compare", MAMBA, "mcore=nightly"),
        ("no release has this fault", "--context-parallel-size 2 --num-layers 4", ""),
    ],
)
def test_there_is_none(why: str, words: str, assumed: str) -> None:
    assert not only_in(words, assumed), why


def test_each_package_of_a_known_fault_has_releases_to_ask_about() -> None:
    assert {row.package for row in KNOWN.values()} <= RELEASES.keys()
