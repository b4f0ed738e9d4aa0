"""`hcp check` as a user runs it: a process, its exact output, its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BRIDGE = """\
model:
  context_parallel_size: 4
  cp_comm_type: a2a+p2p
  hierarchical_context_parallel_sizes: null
"""
OVERRIDES = """\
model.context_parallel_size=4
model.cp_comm_type=a2a+p2p
model.hierarchical_context_parallel_sizes=null
"""
ONLY = ("--select", "HCP001,HCP002")


def written(folder: Path, text: str, name: str = "launch.txt") -> str:
    (folder / name).write_text(text)
    return name


def test_a_finding_is_one_line_and_each_fix_another(hcp, tmp_path: Path) -> None:
    done = hcp("check", written(tmp_path, OVERRIDES), *ONLY, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("launch.txt:3:43: error HCP001 ")
    assert lines[1].startswith("    fix: model.hierarchical_context_parallel_sizes=[2,2]  # ")
    assert lines[-1] == "launch.txt: FAILED: 1 error, 0 warnings, 0 infos; 1 rule applied, 0 not checked"
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.isascii() and "\x1b" not in done.stdout


def test_a_fix_that_is_taken_mends_the_launch(hcp, tmp_path: Path) -> None:
    name = written(tmp_path, OVERRIDES)
    found = json.loads(hcp("check", name, *ONLY, "--format", "json", cwd=tmp_path).stdout)
    fixes = found["findings"][0]["fixes"]
    assert fixes
    for fix in fixes:
        sets = [word for override in fix["overrides"] for word in ("--set", override)]
        assert hcp("check", name, *ONLY, *sets, cwd=tmp_path).returncode == 0
        assert hcp("check", name, *ONLY, "--", *fix["cli"], cwd=tmp_path).returncode == 0


def test_json_has_the_contracts_fields_and_is_the_same_twice(hcp, tmp_path: Path) -> None:
    name = written(tmp_path, OVERRIDES)
    first, second = (hcp("check", name, "--format", "json", "--full", cwd=tmp_path) for _ in range(2))
    assert first.stdout == second.stdout
    data = json.loads(first.stdout)
    assert list(data)[:5] == ["schema", "ok", "verdict", "target", "summary"]
    assert (data["schema"], data["ok"], data["verdict"]) == ("hcp.check/2", False, "failed")
    assert data["target"] == {"name": "launch.txt", "dialect": "bridge", "form": "overrides", "notes": []}
    assert data["facts"]["hcp_sizes"] == {
        "value": None,
        "origin": "launch",
        "location": {"file": "launch.txt", "line": 3, "column": 43},
    }
    (finding,) = [item for item in data["findings"] if item["rule"] == "HCP001"]
    assert set(finding) == {
        "rule",
        "title",
        "severity",
        "effect",
        "stage",
        "message",
        "found",
        "expected",
        "keys",
        "location",
        "presumed",
        "fixes",
        "source",
    }
    assert finding["location"] == {"file": "launch.txt", "line": 3, "column": 43}
    assert all(set(item) == {"rule", "needs"} and item["needs"] for item in data["not_checked"])
    assert data["summary"]["not_checked"] == len(data["not_checked"])


def test_several_targets_give_several_results_and_the_highest_exit_code(hcp, tmp_path: Path) -> None:
    good = written(tmp_path, OVERRIDES.replace("null", "[2,2]"), "good.txt")
    bad = written(tmp_path, OVERRIDES, "bad.txt")
    done = hcp("check", good, bad, "missing.txt", *ONLY, "--format", "json", cwd=tmp_path)
    data = json.loads(done.stdout)
    assert (done.returncode, data["schema"], data["ok"]) == (2, "hcp.check-many/2", False)
    assert [result["ok"] for result in data["results"]] == [True, False, False]
    assert data["results"][2] == {
        "schema": "hcp.error/1",
        "ok": False,
        "target": {"name": "missing.txt"},
        "error": {
            "found": "missing.txt does not exist",
            "expected": "a launch file",
            "do": "check the path",
            "location": None,
        },
    }
    assert hcp("check", good, bad, *ONLY, cwd=tmp_path).returncode == 1
    assert hcp("check", good, *ONLY, cwd=tmp_path).returncode == 0


def test_sarif_is_valid_against_the_published_schema(hcp, tmp_path: Path, root: Path) -> None:
    name = written(tmp_path, OVERRIDES)
    done = hcp("check", name, "missing.txt", "--format", "sarif", cwd=tmp_path)
    data = json.loads(done.stdout)
    results = data["runs"][0]["results"]
    assert "HCP001" in [result["ruleId"] for result in results]
    (region,) = [
        result["locations"][0]["physicalLocation"]["region"] for result in results if result["ruleId"] == "HCP001"
    ]
    assert region == {"startLine": 3, "startColumn": 43, "endLine": 3, "endColumn": 47}
    rules = data["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)
    (explained,) = [rule["help"]["markdown"] for rule in rules if rule["id"] == "HCP001"]
    assert explained == hcp("explain", "HCP001").stdout.rpartition("\n\n")[0]
    assert data["runs"][0]["invocations"][0]["executionSuccessful"] is False
    schema = root.parent / "shared" / "data" / "sarif-schema-2.1.0.json"
    if not schema.is_file():
        pytest.skip("the published SARIF schema is not beside this checkout (../shared/data/sarif-schema-2.1.0.json)")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(data, json.loads(schema.read_text()))


def test_github_annotations_escape_what_would_end_them(hcp, tmp_path: Path) -> None:
    name = written(tmp_path, OVERRIDES, "a,b:c%.txt")
    line = hcp("check", name, *ONLY, "--format", "github", cwd=tmp_path).stdout.splitlines()[0]
    assert line.startswith("::error file=a%2Cb%3Ac%25.txt,line=3,col=43,")
    assert "%0Afix: model.hierarchical_context_parallel_sizes=[2,2]" in line


def test_reports_are_written_beside_the_printed_one(hcp, tmp_path: Path) -> None:
    name = written(tmp_path, OVERRIDES)
    done = hcp("check", name, "-o", "json=out.json", "-o", "sarif=out.sarif", cwd=tmp_path)
    assert "HCP001" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == "hcp.check/2"
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_the_same_launch_comes_from_a_file_from_stdin_and_from_words(hcp, tmp_path: Path) -> None:
    name = written(tmp_path, OVERRIDES)
    outputs = [
        hcp("check", name, *ONLY, "--format", "json", cwd=tmp_path),
        hcp("check", "-", *ONLY, "--format", "json", cwd=tmp_path, stdin=OVERRIDES),
        hcp("check", *ONLY, "--format", "json", "--", *OVERRIDES.split(), cwd=tmp_path),
    ]
    messages = {json.loads(done.stdout)["findings"][0]["message"] for done in outputs}
    assert len(messages) == 1 and {done.returncode for done in outputs} == {1}


def test_a_patch_applies_and_mends_the_file(hcp, tmp_path: Path) -> None:
    import subprocess

    for text, name in ((OVERRIDES, "launch.txt"), (BRIDGE, "launch.yaml")):
        written(tmp_path, text, name)
        done = hcp("check", name, *ONLY, "--diff", cwd=tmp_path)
        patch = done.stdout[done.stdout.index("--- a/") :]
        subprocess.run(["patch", "-p1"], input=patch, text=True, cwd=tmp_path, check=True, capture_output=True)
        assert (tmp_path / name).read_text() != text
        assert hcp("check", name, *ONLY, cwd=tmp_path).returncode == 0


ONE_LINE = (
    "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node 8 pretrain_gpt.py --hybrid-context-parallel --sft"
    " --max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 2 --seq-length 65536 --num-layers 4 --hidden-size 1024"
    " --num-attention-heads 16 --micro-batch-size 1 --pipeline-model-parallel-size 2 --bf16"
    " --calculate-per-token-loss --dataloader-type single\n"
)


def test_the_fixes_of_all_findings_on_one_line_are_one_patch(hcp, tmp_path: Path) -> None:
    import subprocess

    written(tmp_path, ONE_LINE, "launch.sh")
    first = hcp("check", "launch.sh", "--select", "DCP,CP024", "--diff", cwd=tmp_path)
    assert first.stdout.count("--- a/") == 1
    patch = first.stdout[first.stdout.index("--- a/") :]
    subprocess.run(["patch", "-p1"], input=patch, text=True, cwd=tmp_path, check=True, capture_output=True)
    second = hcp("check", "launch.sh", "--select", "DCP002,DCP006,DCP013,CP024", cwd=tmp_path)
    assert "0 errors, 0 warnings" in second.stdout, second.stdout


def test_a_finding_that_an_earlier_fix_clears_needs_no_patch_of_its_own(hcp, tmp_path: Path) -> None:
    written(
        tmp_path,
        "torchrun --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 8 --window-size 128,0"
        " --softmax-type learnable --num-attention-heads 64 --seq-length 65536\n",
        "launch.sh",
    )
    done = hcp("check", "launch.sh", "--select", "CP009,CP010", "--diff", cwd=tmp_path)
    assert " error CP009 " in done.stdout and "; clears CP010 too\n" in done.stdout
    assert "no patch" not in done.stdout and done.stdout.count("+torchrun") == 1
    assert "--cp-comm-type a2a" in done.stdout[done.stdout.index("+torchrun") :]


def test_a_flag_that_is_not_written_is_not_named_as_one_to_leave_out(hcp, tmp_path: Path) -> None:
    written(tmp_path, ONE_LINE, "launch.sh")
    assert "(without" not in hcp("check", "launch.sh", "--select", "DCP002", cwd=tmp_path).stdout
    written(tmp_path, ONE_LINE.replace("--bf16", "--virtual-pipeline-model-parallel-size 2"), "launch.sh")
    done = hcp("check", "launch.sh", "--select", "DCP002", cwd=tmp_path)
    assert "(without --virtual-pipeline-model-parallel-size)" in done.stdout


def test_one_rank_is_no_ranks(hcp, tmp_path: Path) -> None:
    written(tmp_path, "torchrun pretrain_gpt.py --context-parallel-size 8\n", "launch.sh")
    done = hcp("check", "launch.sh", "--select", "TOPO003", cwd=tmp_path)
    assert "found 1 rank for tp 1" in done.stdout, done.stdout
    assert "    fix: torchrun --nproc-per-node=8  # 8 ranks on each node\n" in done.stdout
    assert "  # no context parallelism\n" in done.stdout


def test_a_flag_that_has_to_go_is_said_in_words(hcp, tmp_path: Path) -> None:
    words = "--context-parallel-size 4 --cp-comm-type p2p --hierarchical-context-parallel-sizes 2 2".split()
    done = hcp("check", "--select", "HCP006", "--", *words, cwd=tmp_path)
    assert "    fix: leave out --hierarchical-context-parallel-sizes  # " in done.stdout, done.stdout


def test_a_key_that_hydra_only_adds_keeps_its_plus(hcp, tmp_path: Path) -> None:
    key = "actor_rollout_ref.actor.megatron.override_transformer_config"
    sizes = f" '+{key}.hierarchical_context_parallel_sizes=[2,2]'"
    for more, rule, patched in (
        # The sizes that HCP001 alone would take are HCP010's error, so the patch has the next fix.
        ("", "HCP001", f" +{key}.cp_comm_type=p2p"),
        (sizes, "HCP010", f" +{key}.cp_comm_type=p2p +{key}.hierarchical_context_parallel_sizes=null"),
    ):
        launch = (
            "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron"
            f" actor_rollout_ref.actor.megatron.context_parallel_size=4 '+{key}.cp_comm_type=a2a+p2p'{more}\n"
        )
        written(tmp_path, launch, "v.sh")
        done = hcp("check", "v.sh", "--select", rule, "--diff", cwd=tmp_path)
        assert f"    fix: ++{key}." in done.stdout
        assert patched in done.stdout[done.stdout.index("--- a/") :]


def test_strict_fails_where_an_error_rule_could_not_be_decided(hcp) -> None:
    words = "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2".split()
    done = hcp("check", "--select", "HCP013", "--", *words)
    assert done.returncode == 0 and "not checked: HCP013 (te); add --assume te=VERSION\n" in done.stdout
    assert hcp("check", "--select", "HCP013", "--strict", "--", *words).returncode == 1


NO_LAUNCH = {
    "service.yaml": ("apiVersion: v1\nkind: Service\n", "looks like a Kubernetes manifest, which is not supported"),
    "hooks.yaml": ("repos: []\n", "has no key of a known dialect (it has repos)"),
    "list.yml": ("- a\n", "is a YAML list at its top"),
    "empty.yaml": ("# later\n", "is empty"),
    "void.sh": ("", "is empty"),
    "build.sh": ("python setup.py build\n", "has no training command (1 other Python command(s))"),
    "train.py": ("import torch\n", "is Python, which is never executed"),
    "train.toml": ("[job]\n", "looks like a TOML configuration (torchtitan, prime-rl), which is not supported"),
    "config.json": ('{"architectures": ["A"]}', "is a model's config.json, not a launch"),
    "plan.json": ('{"schema": "hcp.plan/1"}', "is one of hcp's own files (hcp.plan/1), not a launch"),
    "two.yaml": ("a: 1\n---\nb: 2\n", "a second YAML document starts here"),
    "stack.yaml": ("Resources:\n  B: {Name: !Ref Foo}\n", "the tag !Ref"),
    "many.json": (f"[{'1,' * 100_001}1]", "more than 100,000 values"),
    "large.yaml": ("k: v\n" * 1_000_001, "is too large (5,000,005 bytes or more)"),
    "chart.yaml": ("{{- if .Values.on }}\na: {{ .Values.b }}\n{{- end }}\n", "a template ({{- if .Values.on }}"),
    "pod.yaml": ("apiVersion: v1\nkind: Pod\nspec:\n  containers: [{name: a, image: b, command: [sleep]}]\n", "has"),
}


def test_a_file_that_is_no_launch_can_be_skipped_with_one_note(hcp, tmp_path: Path) -> None:
    for name, (text, _) in NO_LAUNCH.items():
        written(tmp_path, text, name)
    done = hcp("check", "--skip-unrecognised", *NO_LAUNCH, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    notes = done.stderr.splitlines()
    assert len(notes) == len(NO_LAUNCH)
    for note, (name, (_, found)) in zip(notes, NO_LAUNCH.items(), strict=True):
        assert note.startswith((f"hcp: note: skipped: {name} {found}", f"hcp: note: skipped: {name}: {found}")), note
    assert hcp("check", *NO_LAUNCH, cwd=tmp_path).returncode == 2


def test_what_may_hide_a_launch_is_never_skipped(hcp, tmp_path: Path) -> None:
    hidden = {
        "broken.yaml": "model: [1\n",
        "two.yaml": "a: 1\n---\nmodel: {context_parallel_size: 2}\n",
        "tag.yaml": "name: !Ref x\ncommand: [torchrun, train.py]\n",
        "chart.yaml": "{{- if .Values.on }}\nargs: [--context-parallel-size, 2]\n{{- end }}\n",
        "quote.sh": 'echo "hi\ntorchrun pretrain_gpt.py --context-parallel-size 2\n',
        "open.sh": "if true; then\ntorchrun pretrain_gpt.py --context-parallel-size 2\n",
        "outer.sh": "bash ../elsewhere/train.sh\n",
        "bad.yaml": "model:\n  context_parallel_size: many\n",
    }
    for name, text in hidden.items():
        done = hcp("check", "--skip-unrecognised", written(tmp_path, text, name), cwd=tmp_path)
        assert (done.returncode, "skipped" in done.stderr) == (2, False), name
    assert hcp("check", "--skip-unrecognised", "missing.yaml", cwd=tmp_path).returncode == 2


def test_findings_of_launches_beside_skipped_files_count(hcp, tmp_path: Path) -> None:
    bad, other = written(tmp_path, OVERRIDES), written(tmp_path, "- a\n", "list.yaml")
    done = hcp("check", "--skip-unrecognised", other, bad, *ONLY, "--format", "json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["target"]["name"]) == (1, bad)
    done = hcp("check", "--skip-unrecognised", other, "--format", "json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["summary"]["targets"]) == (0, 0)
