"""keys.txt, both ways: what a target carries shows in its text, what it leaves out does not and is said."""

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.render.from_launch import stated_by
from megatron_hcp.render.job import plan_job
from megatron_hcp.render.site import KEYS, settle_site
from megatron_hcp.render.targets.accounts import accounts_of
from megatron_hcp.render.targets.table import TARGETS, fate_of, key_fates, refuse_on, start_on
from megatron_hcp.render.targets.write import written_on
from support.rendering import VERL_WORDS
from support.target_launches import MEGATRON

STATED = {
    **dict.fromkeys("account partition qos reservation constraint exclude nodelist gpu_type arch".split(), "sm90"),
    **dict.fromkeys(
        "nodes cpus_per_task segment nvlink_domain signal free_gib comm_gbps stall ft_outside".split(), "7"
    ),
    **dict.fromkeys("requeue max_restarts ft_restarts".split(), "5"),
    **dict.fromkeys("checkpoint_dir workdir container_workdir venv python".split(), "/ck/other"),
    **dict.fromkeys("exclusive".split(), False),
    **dict.fromkeys("slurm_requeue container_home comm_test in_allocation".split(), True),
    "shared": ("/data",),
    "mounts": ("ck:/ck", "/data"),
    "gpus_per_node": "4",
    "time": "2:00:00",
    "job_name": "Other_1",
    "mem": "9G",
    "gpu_request": "gres",
    "switches": "2",
    "logs": "/ck/x",
    "log_file": "a-%j.out",
    "sbatch": ("--comment=x",),
    "srun": ("--mpi=pmix",),
    "modules": ("cuda",),
    "program": ("x.py",),
    "container_runtime": "pyxis",
    "container_image": "other:2",
    "env": ("A=b",),
    "facts": ("te=2.14",),
    "array": ("--seed 1", "--seed 2"),
    "array_range": "0-3",
    "health": ("dcgm",),
    "preflight": "dryrun",
    "ft_timeouts": "setup:1,step:2",
    "verify_level": "cpu",
}
BASE = {"nodes": "2", "gpus_per_node": "8", "container_image": "x:1", "mounts": ("ck:/ck",), "time": "4:00:00"}
PODS = {**BASE, "logs": "/ck/logs", "checkpoint_dir": "/ck/a"}


def launch_of(target, folder):
    is_ray = "ray" in target.starts
    words = f"python3 -m verl.trainer.main_ppo {' '.join(VERL_WORDS)}" if is_ray else f"pretrain_gpt.py {MEGATRON}"
    (folder / "train.sh").write_text(words if is_ray else f"torchrun {words}\n")
    return load_launch(str(folder / "train.sh"), LoadOptions(None, ()))


def written(target, launch, start, options):
    stated = stated_by(launch, in_pods=True)
    settled = settle_site(None, options, stated.site, stated.origins)
    start = start or stated.start
    refuse_on(target, launch.dialect, start, settled.values)
    start = start_on(target, start, settled.values)
    job = plan_job(start, settled.values, launch, origins=settled.origins, target=target)
    return written_on(target, job, launch), accounts_of(target, job, launch, stated, settled)


@pytest.mark.parametrize("key", [key.name for key in KEYS])
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "slurm"])
def test_a_key_becomes_what_the_table_says(tmp_path, name, key):
    target = TARGETS[name]
    fate, why = fate_of(key, target)
    launch, base = launch_of(target, tmp_path), (BASE if "ray" in target.starts else PODS)
    start = "ft_launcher" if key.startswith("ft_") and "ft_launcher" in target.starts else None
    options = {**base, key: STATED[key]}
    if fate == "refused":
        with pytest.raises(HcpError, match=f"found {key} with --target {name}"):
            written(target, launch, start, options)
        return
    text, accounts = written(target, launch, start, options)
    mine = [word for word in accounts if word.text.startswith(f"{key}=")]
    assert [(word.fate, word.became) for word in mine] == ([] if fate == "carried" else [(fate, why)])
    assert (text != written(target, launch, start, base)[0]) == (fate in ("carried", "rewritten"))


def test_every_key_of_a_site_has_a_row():
    assert list(key_fates()) == [key.name for key in KEYS]
    assert all(len(cells) == 3 and all(cell.text for cell in cells) for cells in key_fates().values())
