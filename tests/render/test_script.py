"""The templates read a job and nothing else: a name that it does not have is an error, not an empty line."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
from jinja2 import Environment, UndefinedError, nodes

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.render.job import Job, plan_job
from megatron_hcp.render.script import render_job
from megatron_hcp.render.site import KEYS, load_site
from megatron_hcp.render.starts import STARTS
from megatron_hcp.resources import pack_dir

TEMPLATES = [path for path in sorted(pack_dir("templates").glob("*.j2")) if not {".svg", ".html"} & {*path.suffixes}]
PROPERTIES = {name for name, value in vars(Job).items() if isinstance(value, property)}
NAMES = {field.name for field in fields(Job)} | PROPERTIES


def _read_by(path: Path) -> tuple[set[str], set[str]]:
    """The names that a template reads of a job, and of its site."""
    tree = Environment().parse(path.read_text())
    of_job, of_site = set(), set()
    for node in tree.find_all(nodes.Getattr):
        if isinstance(node.node, nodes.Name) and node.node.name == "job":
            of_job.add(node.attr)
        elif isinstance(node.node, nodes.Getattr) and node.node.attr == "site":
            of_site.add(node.attr)
    return of_job, of_site


def test_there_is_a_template_for_every_start():
    assert {path.name.removesuffix(".sbatch.j2") for path in TEMPLATES if ".sbatch" in path.name} == set(STARTS)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_reads_only_what_a_job_and_its_site_have(path):
    of_job, of_site = _read_by(path)
    assert of_job <= NAMES and of_site <= {key.name for key in KEYS}


def test_everything_that_a_job_has_is_read_by_a_template_or_a_target():
    of_spec = set(re.findall(r"self\.(\w+)", inspect.getsource(Job)))
    read = set().union(*(_read_by(path)[0] for path in TEMPLATES))
    render = Path(inspect.getfile(Job)).parent
    sources = [path.read_text() for name in ("kubernetes", "targets") for path in (render / name).glob("*.py")]
    of_targets = set(re.findall(r"\bjob\.(\w+)", "".join(sources)))
    assert read | ((of_spec | of_targets) & NAMES) == NAMES and "spec_text" in read


def _job():
    words = ("--seq-length", "8")
    site = load_site(None, {"nodes": "2", "gpus_per_node": "2", "time": "30", "program": ("x.py",)})
    return plan_job("srun", site, load_launch("", LoadOptions(dialect="mlm", words=words)), words)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ job.tilte }}", UndefinedError),
        ("{% if job.site.noeds %}x{% endif %}", UndefinedError),
        ("{{ titel }}", UndefinedError),
        ("{{ job.site.venv }}", AssertionError),
        ("{{ '' }}", AssertionError),
    ],
)
def test_what_would_render_as_nothing_is_an_error(text, error, tmp_path, monkeypatch):
    (tmp_path / "srun.sbatch.j2").write_text(text)
    monkeypatch.setattr("megatron_hcp.render.script.pack_dir", lambda name: tmp_path)
    with pytest.raises(error):
        render_job(_job())


def test_a_script_that_slurm_would_not_take_is_refused(monkeypatch):
    monkeypatch.setattr("megatron_hcp.render.script._MAX_BYTES", 1000)
    with pytest.raises(HcpError, match="wanted at most 1,000, Slurm's limit"):
        render_job(_job())
