"""A launch script as a reading: places, what is unseen, accepted findings, notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.place import Location
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.readers.script import read_shell


def read(script: str) -> Reading:
    return read_shell(script, "x.sh")


def cut(text: str, place: Location | None) -> str:
    """The text at a place."""
    assert place is not None
    lines = text.split("\n")[place.line - 1 : place.end_line]
    lines[-1] = lines[-1][: place.end_column - 1]
    lines[0] = lines[0][place.column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "torchrun pretrain_gpt.py --num-layers 2 --cp-comm-type p2p a2a --bf16",
            {"num_layers": "--num-layers 2", "cp_comm_type": "--cp-comm-type p2p a2a", "bf16": "--bf16"},
        ),
        ("torchrun pretrain_gpt.py \\\n  --num-layers \\\n    2 --bf16", {"num_layers": "--num-layers \\\n    2"}),
        (
            'N=2\nA=(\n  --num-layers $N # two\n  --bf16\n)\ntorchrun pretrain_gpt.py "${A[@]}" --x="$N"',
            {"num_layers": "--num-layers $N", "bf16": "--bf16", "x": '--x="$N"'},
        ),
        (
            'A="--num-layers 2 \\\n --bf16"\nB="$A --y \'z\'"\ntorchrun pretrain_gpt.py $B',
            {"num_layers": "--num-layers 2", "bf16": "--bf16", "y": "--y 'z'"},
        ),
        ("A=('--num-layers 2' --bf16)\ntorchrun pretrain_gpt.py ${A[@]}", {"num_layers": "--num-layers 2"}),
        (
            'N=2\nC="python pretrain_gpt.py --num-layers $N --bf16"\nsrun bash -c "cd x; $C"',
            {"num_layers": "--num-layers $N", "bf16": "--bf16"},
        ),
        (
            "A='é µ'\ntorchrun pretrain_gpt.py --save 'ü' --num-layers 2 # ß",
            {"save": "--save 'ü'", "num_layers": "--num-layers 2"},
        ),
        (
            "sbatch <<EOF\n#!/bin/bash\nsrun python pretrain_gpt.py --num-layers 2\nEOF",
            {"num_layers": "--num-layers 2"},
        ),
        ("f() { torchrun pretrain_gpt.py --num-layers $1; }\nf 2", {"num_layers": "--num-layers $1"}),
        ("A=--bf16\ntorchrun pretrain_gpt.py $A --num-layers 2", {"bf16": "--bf16"}),
        ("srun bash -c 'exec \"$@\"' x python pretrain_gpt.py --num-layers 2", {"num_layers": "--num-layers 2"}),
        (
            'python3 -m verl.trainer.main_ppo data.train_files="x y" trainer.nnodes=2',
            {"data.train_files": 'data.train_files="x y"', "trainer.nnodes": "trainer.nnodes=2"},
        ),
    ],
)
def test_a_settings_place_cuts_out_what_was_written(script: str, expected: dict[str, str]) -> None:
    places = {setting.key: cut(script, setting.location) for setting in read(script).settings}
    assert {key: places[key] for key in expected} == expected


def test_columns_count_characters_also_far_into_a_line() -> None:
    script = "A='" + "µé€" * 3000 + "'; torchrun pretrain_gpt.py --save '" + "ß" * 2000 + "' --num-layers 2"
    place = read(script).settings[-1].location
    assert place is not None and place[1:] == (1, len(script) - 13, 1, len(script) + 1)


def test_facts_have_places_too() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=2 -t 1:00\nexport A=1\nsrun -n 16 python x.py --context-parallel-size 2\n"
    facts = read(script).facts
    assert {name: cut(script, fact.location) for name, fact in facts.items() if fact.location} == {
        "sbatch.nodes": "--nodes=2",
        "sbatch.time": "-t 1:00",
        "nodes": "--nodes=2",
        "env.A": "A=1",
        "srun.ntasks": "-n 16",
        "world_size": "-n 16",
        "ntasks_per_node": "-n 16",
        "gpus_per_node": "-n 16",
    }
    assert facts["nodes"].key == "--nodes" and facts["env.A"].key == "A"


def test_defaults_hold_only_where_all_flags_are_seen() -> None:
    assert build_launch(read("torchrun pretrain_gpt.py --num-layers 2")).facts["cp"].value == 1
    launch = build_launch(read("torchrun pretrain_gpt.py --num-layers 2 $EXTRA_ARGS"))
    assert "cp" not in launch.facts and launch.facts["num_layers"].value == 2


def test_arguments_out_of_a_checkpoint_are_unknown_where_no_flag_says_them() -> None:
    flags = "--num-layers 2 --load x --use-checkpoint-args"
    launch = build_launch(read(f"torchrun pretrain_gpt.py {flags}"))
    assert launch.facts["num_layers"].value == 2 and launch.facts["tp"].value == 1
    assert "checkpoint" in launch.unknown["heads"] and "heads" not in launch.facts
    launch = build_launch(read(f"torchrun pretrain_gpt.py {flags} --use-mp-args-from-checkpoint-args"))
    assert "tp" not in launch.facts and launch.facts["cp"].value == 1
    assert "cp" not in build_launch(read("torchrun pretrain_gpt.py --num-layers 2 --yaml-cfg x.yaml")).facts


def test_accepted_findings_are_kept_with_and_without_a_reason() -> None:
    script = (
        "# hcp: ignore=TOPO001 the ring is fast enough\n"
        "torchrun pretrain_gpt.py --num-layers 2 \\\n  --bf16 # hcp: ignore=CP001\n"
    )
    found = read(script).acceptances
    assert [(a.rule, a.reason, a.location.line) for a in found] == [
        ("TOPO001", "the ring is fast enough", 1),
        ("CP001", "", 3),
    ]


def test_notes_tell_what_a_person_should_know() -> None:
    assert read("#!/bin/bash\nset -e\n#SBATCH -N 2\ntorchrun pretrain_gpt.py --num-layers 2").notes == (
        "1 #SBATCH line(s) come after the first command: sbatch doesn't read them",
    )
    (note,) = read("IMAGE=\nif [ -z $IMAGE ]; then\n  exit 1\nfi\ntorchrun pretrain_gpt.py --num-layers 2").notes
    assert note == "as it stands, the script stops in line 3; it is read as if it went on"
    (note,) = read("if x; then\n  torchrun pretrain_gpt.py --num-layers 2\nfi").notes
    assert note == "whether this command runs depends on the `if` in line 1"
    script = "torchrun pretrain_gpt.py \\\r\n  --num-layers 2\r\n"
    assert "CRLF" in read(script).notes[0] and read(script).settings[0].value == ["2"]


def test_the_text_is_kept_for_patches() -> None:
    script = "torchrun pretrain_gpt.py --num-layers 2\n"
    reading = read(script)
    assert (reading.text, reading.form, reading.dialect, reading.complete) == (script, "shell", "mlm", True)


def test_the_examples_say_what_they_are_meant_to_say(root: Path) -> None:
    facts = {
        name: {
            key: fact.value
            for key, fact in build_launch(
                read_shell((root / "examples" / name).read_text(encoding="utf-8"), name)
            ).facts.items()
        }
        for name in ("mlm_hcp.sbatch", "mlm_broken.sh")
    }
    good, broken = facts["mlm_hcp.sbatch"], facts["mlm_broken.sh"]
    names = (
        "start",
        "nodes",
        "gpus_per_node",
        "world_size",
        "tp",
        "cp",
        "dp",
        "cp_comm_type",
        "hcp_sizes",
        "kv_heads",
        "seq_length",
        "placement",
        "sbatch.signal",
        "env.CUDA_DEVICE_MAX_CONNECTIONS",
    )
    assert [good[name] for name in names] == [
        "srun",
        4,
        8,
        32,
        2,
        8,
        2,
        "a2a+p2p",
        (4, 2),
        8,
        131072,
        "block",
        "TERM@300",
        "1",
    ]
    assert broken["cp_comm_type"] == "a2a+p2p" and broken["hcp_sizes"] is None
    assert broken["seq_length"] % (2 * broken["cp"]) != 0
