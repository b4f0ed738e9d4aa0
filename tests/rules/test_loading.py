"""Which rules are loaded for a launch: never fewer than can concern it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.rules.registry import RULES, rules_for
from megatron_hcp.rules.rule import Rule
from megatron_hcp.rules.view import Unknown, View

LaunchOf = Callable[..., Launch]


def concerns(rule: Rule, view: View) -> bool:
    try:
        return rule.applies(view)
    except Unknown:
        return True


def left_out_wrongly(launch: Launch) -> list[str]:
    loaded = {rule.id for rule in rules_for(launch)}
    view = View(launch)
    return [rule.id for rule in RULES if rule.id not in loaded and concerns(rule, view)]


@pytest.mark.slow
def test_a_check_with_the_families_of_a_launch_says_what_a_check_with_all_rules_says(
    rule: Rule, launch_of: LaunchOf
) -> None:
    for example in (rule.good, rule.bad):
        launch = launch_of(example.dialect, example.text, example.assume)
        assert left_out_wrongly(launch) == []
        selected, whole = check_launch(launch, rules_for), check_launch(launch, RULES)
        assert selected._replace(presumed=()) == whole._replace(presumed=())
        assert {*selected.presumed} <= {*whole.presumed}


OTHERS = [
    ("mlm", "#SBATCH --requeue\nmpirun -np 8 python pretrain_gpt.py --micro-batch-size 1\n"),
    (
        "verl",
        "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.megatron.dynamic_context_parallel=False "
        "actor_rollout_ref.ref.megatron.dynamic_context_parallel=True",
    ),
    # All is known, and packing off: the specs alone are wrong.
    (
        "bridge",
        "_target_: megatron.bridge.training.config.ConfigContainer\ndataset:\n  enable_offline_packing: false\n"
        "  offline_packing_specs:\n    packed_sequence_size: 0\n",
    ),
    # All is known: the handler of the exit signal alone meets a fault.
    (
        "bridge",
        "_target_: megatron.bridge.training.config.ConfigContainer\nmodel: {context_parallel_size: 8}\n"
        "train: {exit_signal_handler: true}\n",
        "bridge=0.4.2 mcore=0.16.1",
    ),
]


@pytest.mark.parametrize("other", OTHERS, ids=["SLURM010", "DCP027", "PACK020", "KNOWN124"])
def test_a_launch_that_shows_its_need_in_few_facts_gets_its_rules(other: tuple[str, ...], launch_of: LaunchOf) -> None:
    assert left_out_wrongly(launch_of(*other)) == []


@pytest.mark.slow
def test_no_single_fact_concerns_a_rule_of_a_family_that_is_left_out(launch_of: LaunchOf) -> None:
    """Every value that a fact has in some example, in the launch of each dialect and form that loads the fewest."""
    launches = [
        launch_of(example.dialect, example.text, example.assume) for rule in RULES for example in (rule.good, rule.bad)
    ]
    values = {(name, repr(fact.value)): fact for launch in launches for name, fact in launch.facts.items()}
    plain = {(launch.dialect, launch.reading.form): launch for launch in sorted(launches, key=_num_rules, reverse=True)}
    for launch in plain.values():
        for (name, _), fact in values.items():
            assert left_out_wrongly(launch._replace(facts={**launch.facts, name: fact})) == [], (name, fact.value)
            without = {other: known for other, known in launch.facts.items() if other != name}
            assert left_out_wrongly(launch._replace(facts=without)) == [], f"without {name}"


def _num_rules(launch: Launch) -> int:
    return len(rules_for(launch))


def test_a_fix_is_judged_by_the_families_that_it_brings_in(launch_of: LaunchOf) -> None:
    launch = launch_of("mlm", "--context-parallel-size 2")
    dynamic = launch._replace(facts={**launch.facts, "hybrid_context_parallel": Fact(True, "launch")})
    brought_in = {rule.id for rule in rules_for(dynamic)} - {rule.id for rule in rules_for(launch)}
    assert {rule_id[:3] for rule_id in brought_in} == {"DCP", "KNO", "PAC"}


def test_a_plain_launch_imports_no_family_that_it_does_not_need() -> None:
    code = (
        "import sys\nfrom megatron_hcp.cli.main import main\n"
        "try:\n    main(['check', '--', '--context-parallel-size', '2'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('megatron_hcp.rules.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    left_out = (
        "dcp.names model.mixers pack.rows slurm.tasks accept cp.attention cp.modes loss topo.order slurm.rendezvous"
    )
    for module in left_out.split():
        assert f"'megatron_hcp.rules.{module}'" not in done.stderr
    assert "'megatron_hcp.rules.cp.lengths'" in done.stderr
