"""`hcp explain OPTION`: who has an option or key, and what start-up checks of it."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize(
    "written", ["--moe-paged-stash", "moe_paged_stash", "model.moe_paged_stash", "model.moe_paged_stash=true"]
)
def test_an_option_is_explained_however_it_is_written(hcp, written: str) -> None:
    lines = hcp("explain", written).stdout.splitlines()
    assert lines[0] == "# moe_paged_stash"
    assert "- megatron-lm 0.18.0 to dev: --moe-paged-stash, a switch" in lines
    at = lines.index("  needs not cpu_offloading")
    assert lines[at - 1] == "- 0.18.0 to dev, where moe_paged_stash"
    assert lines[at + 1] == '  else  "moe_paged_stash cannot be enabled with cpu_offloading."'


def test_a_page_names_the_rules_about_the_option_and_the_other_frameworks_keys(hcp) -> None:
    text = hcp("explain", "--cp-comm-type").stdout
    assert "- hcp explain CP009: " in text and "explain CP001" not in text
    assert "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type" in text
    assert "## What megatron-bridge checks and changes at start-up" in text


def test_rules_and_options_are_explained_together(hcp) -> None:
    text = hcp("explain", "HCP002", "--cp-comm-type").stdout
    assert "# cp_comm_type" in text and "# HCP002: " in text
    data = json.loads(hcp("explain", "HCP002", "--cp-comm-type", "--format", "json").stdout)
    assert [rule["rule"] for rule in data["rules"]] == ["HCP002"]
    assert [option["option"] for option in data["options"]] == ["cp_comm_type"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("--not", "found no rule and no option"),
        ("args", "found no rule and no option"),
        ("--moe-paged-stesh", "did you mean moe_paged_stash?"),
        ("--nothing-like-it-anywhere", "`hcp explain` lists all rules"),
        ("a" * 5000, "found no rule and no option 'aaa"),
        ("ümläut", "found no rule and no option"),
        ("HCP999", "no rule 'HCP999'"),
    ],
)
def test_a_name_that_nobody_has_is_one_clear_line(hcp, name: str, said: str) -> None:
    done = hcp("explain", name)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < 400 and not done.stdout


ARGUMENTS = """
def add_megatron_arguments(parser):
    group = parser.add_argument_group(title='ours')
    group.add_argument('--our-own-window', type=int, nargs='+', default=None)
    return parser


def validate_args(args, defaults={}):
    if args.our_own_window:
        assert args.context_parallel_size == 1, 'our own window has no context parallelism'
"""


def test_an_option_of_a_fork_is_explained_from_its_code(hcp, tmp_path) -> None:
    fork = tmp_path / "megatron"
    for name, text in {
        "core/package_info.py": "MAJOR = 0\nMINOR = 20\nPATCH = 0\n",
        "training/arguments.py": ARGUMENTS,
    }.items():
        (fork / name).parent.mkdir(parents=True)
        (fork / name).write_text(text)
    lines = hcp("explain", "--our-own-window", "--upstream", tmp_path).stdout.splitlines()
    assert "- megatron-lm 0.20.0 of --upstream: --our-own-window, int, one or more" in lines
    at = lines.index("- 0.20.0 of --upstream, where our_own_window")
    assert lines[at + 1] == "  needs context_parallel_size == 1"
    assert hcp("explain", "--our-own-window").returncode == 2
    done = hcp("explain", "--our-own-window", "--upstream", tmp_path / "nothing")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_what_stands_after_two_dashes_is_explained_and_a_tree_without_an_option_is_refused(hcp, tmp_path) -> None:
    assert hcp("explain", "--", "--cp-comm-type").stdout.startswith("# cp_comm_type\n")
    assert hcp("explain", "--", "HCP002").stdout.startswith("# HCP002: ")
    for words in (("HCP002",), ()):
        done = hcp("explain", *words, "--upstream", tmp_path)
        assert done.returncode == 2 and "found --upstream without an option; wanted one" in done.stderr
