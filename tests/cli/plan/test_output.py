"""What `hcp plan` says and draws: the words of its text, its page and picture, and the contract of its JSON."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from megatron_hcp.draw.plan import brief_text, render_plan
from megatron_hcp.rules.registry import BY_ID

Hcp = Callable[..., "CompletedProcess[str]"]
MODEL = ("plan", "--model", "examples/llama3_8b_config.json")
JOB = ("--gpus", "32", "--gpu", "h100", "--seq-length", "131072", "--global-batch", "128")
GIVEN = (*MODEL, *JOB)
"""Llama 3 8B, whose sizes the README plans too."""


def planned(hcp: Hcp, root: Path, *words: str) -> dict:
    return json.loads(hcp(*words, "--format", "json", cwd=root).stdout)


def test_what_is_shown_as_less_memory_has_less_memory_than_the_first(hcp: Hcp, root: Path) -> None:
    asked = (*MODEL, "--gpus", "32", "--gpu", "h100", "--seq-length", "131072", "--global-batch", "64")
    lines = hcp(*asked, cwd=root).stdout.splitlines()
    data = planned(hcp, root, *asked)
    first = data["layouts"][0]
    start = lines.index("less memory than the first one:")
    rows = [line.split() for line in lines[start + 1 :] if line.startswith("  ") and " GiB  " in line]
    wanted = [item for item in data["frontier"] if item["peak_gib"] < first["memory_gib"]["peak"]]
    assert len(rows) == len(wanted) < len(data["frontier"]), "the frontier has faster layouts, which need more memory"
    for row, item in zip(rows, wanted, strict=True):
        more = item["step_s"] / first["step_s"] - 1
        assert row[:5] == [f"{item['step_s']:.4g}", "s", f"{more:+.1%}", f"{item['peak_gib']:.1f}", "GiB"]


def test_the_text_names_what_it_counts(hcp: Hcp, root: Path) -> None:
    levels = "tp=2 pp=2 vp=17 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2"
    job = (*JOB[:4], "--seq-length", "262144", "--global-batch", "64")
    text = " ".join(hcp(*MODEL, *job, "--layout", levels, cwd=root).stdout.split())
    assert "a rank's 131,072 tokens of K and V after the inner all-to-all" in text
    assert "32 layers do not divide into 34 (pp 2 x vp 17), so embedding and loss count as a layer each" in text
    assert "assumed the model can take 262144 tokens, more than its 131072 positions: rotary scaling" in text
    assert "a step has 64 sequences" not in text, "verl has no levels"
    even = " ".join(hcp(*GIVEN, "--layout", "tp=8 pp=2 vp=16 cp=2", cwd=root).stdout.split())
    assert "exposed TP communication" in even
    assert "chunks" not in even and "rotary scaling" not in even and "a rank's 65,536 tokens of K and V across" in even
    assert "a step has 128 sequences, which is ppo_mini_batch_size x rollout.n" in even


MOE = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False,
}  # fmt: skip


def test_a_framework_that_overlaps_less_is_told_its_own_time(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    job = ("--gpus", "64", "--gpu", "h100", "--seq-length", "32768", "--global-batch", "64")
    asked = ("plan", "--model", str(tmp_path / "config.json"), *job, "--layout")
    text = " ".join(hcp(*asked, "cp=4 ep=16", cwd=root).stdout.split())
    (times,) = {re.sub(r"\D*$", "", time) for time in re.findall(r"overlaps less: (\S+) s per step", text)}
    apart = planned(hcp, root, *asked, "cp=4 ep=16", "--assume", "verl=0.9")["layouts"][0]["step_s"]
    assert float(times) == pytest.approx(apart, rel=1e-3)
    # A pipeline without virtual stages cannot overlap it anywhere.
    assert "overlaps less" not in hcp(*asked, "pp=2 cp=4 ep=16", cwd=root).stdout


def test_the_picture_has_the_domains_that_the_plan_counts_with(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    job = ("--gpus", "256", "--gpu", "gb200", "--seq-length", "65536", "--global-batch", "64", "--nvlink-domain", "72")
    layout = ("--layout", "tp=8 cp=4")
    assert planned(hcp, root, *MODEL, *job, *layout)["job"]["domain"] == 64  # whole nodes, as many in each
    hcp(*MODEL, *job, *layout, "--html", str(tmp_path / "plan.html"), cwd=root)
    page = (tmp_path / "plan.html").read_text()
    (drawn,) = re.findall(r"image/svg\+xml;base64,([^\"]+)", page)
    picture = base64.b64decode(drawn).decode()
    assert "domain of 64 GPUs" in picture and "domains of 72" not in picture


def test_a_micro_batch_that_nobody_asked_for_is_said_to_be_free(hcp: Hcp, root: Path) -> None:
    short = (*MODEL, "--gpus", "32", "--gpu", "h100", "--seq-length", "2048", "--global-batch", "1024")
    free, fixed = planned(hcp, root, *short), planned(hcp, root, *short, "--hold", "mbs=2")
    assert free["layouts"][0]["layout"]["mbs"] > 1 and fixed["layouts"][0]["layout"]["mbs"] == 2
    assert [any("--hold mbs=1" in note for note in data["assumed"]) for data in (free, fixed)] == [True, False]


@pytest.mark.slow
def test_why_not_says_what_recomputation_was_judged(hcp: Hcp, root: Path) -> None:
    asked = [word for text in ("cp=16", "cp=16 recompute=full", "tp=3") for word in ("--why-not", text)]
    text = " ".join(hcp(*GIVEN, *asked, cwd=root).stdout.split())
    assert "why not cp=16 p2p without recomputation: " in text
    assert "; with recompute=full it fits at " in text
    assert "why not cp=16 p2p recompute=full: " in text and "why not tp=3 without" not in text
    reasons = planned(hcp, root, *GIVEN, *asked)["why_not"]
    again = reasons[0]["recomputed"]
    assert again["fits"] and again["layout"] == reasons[1]["layout"]
    assert reasons[1]["recomputed"] is None and reasons[2]["recomputed"] is None


def test_pictures_are_well_formed_and_need_nothing_from_outside(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "plan.html", tmp_path / "plan.svg"
    fixed = ("--hold", "tp=1", "--hold", "cp=16")
    assert hcp(*GIVEN, *fixed, "--html", str(page), "--svg", str(picture), cwd=root).returncode == 0
    ElementTree.parse(picture)
    text = page.read_text()
    assert "data:image/svg+xml;base64," in text and "://" not in text.replace("http://www.w3.org", "")


def test_a_models_name_cannot_break_a_picture(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    config = json.loads((root / "examples" / "llama3_8b_config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"_name_or_path": "\x1b[31m<b>\nline\u202e"}))
    words = ["--layout", "tp=2 cp=8", "--html", "plan.html", "--svg", "plan.svg"]
    assert hcp("plan", "--model", "config.json", *JOB, "--gpu", "h100", *words, cwd=tmp_path).returncode == 0
    ElementTree.parse(tmp_path / "plan.svg")
    for name in ("plan.svg", "plan.html"):
        drawn = (tmp_path / name).read_text()
        assert "\\x1b[31m&lt;b&gt;\\nline\\u202e" in drawn and "\x1b" not in drawn and "\u202e" not in drawn


@pytest.mark.slow
def test_a_layout_that_cannot_run_comes_with_the_way_to_the_best(hcp: Hcp, root: Path) -> None:
    for layout, mends in (("ep=4", False), ("tp=2 cp=4 recompute=none", True)):
        text = " ".join(hcp(*GIVEN, "--layout", layout, cwd=root).stdout.split())
        assert ("nearest" in text) is mends
        asked = text.partition("search --why-not '")[2].partition("'")[0]
        assert layout in asked or all(word in asked for word in layout.split())
        assert planned(hcp, root, *GIVEN, "--why-not", asked)["why_not"]
    assert "search" not in hcp(*GIVEN, "--layout", "tp=2 cp=8", cwd=root).stdout


def test_a_width_that_the_model_does_not_say_is_named(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    config = json.loads((root / "examples" / "llama3_8b_config.json").read_text())
    del config["intermediate_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = planned(hcp, root, "plan", "--model", str(tmp_path), *JOB, "--layout", "tp=2 cp=8")
    assert data["assumed"][0] == "the usual width of the MLP: the config.json does not say it"
    assert not any("usual" in note for note in planned(hcp, root, *GIVEN, "--layout", "tp=2 cp=8")["assumed"])


@pytest.mark.slow
def test_the_page_says_why_nothing_fits_and_its_overrides_can_be_pasted(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "plan.html", tmp_path / "plan.svg"
    out = ("--html", str(page), "--svg", str(picture))
    small = (*MODEL, "--gpus", "1", *JOB[2:])
    assert hcp(*small, *out, cwd=root).returncode == 0
    change = planned(hcp, root, *small)["remedy"]["text"]
    assert f"no layout fits; change: {change}" in page.read_text() and change in picture.read_text()
    assert hcp(*GIVEN, "--layout", "tp=3", *out, cwd=root).returncode == 0
    rules = planned(hcp, root, *GIVEN, "--layout", "tp=3")["layouts"][0]["rules"]
    assert f"this layout is illegal: {', '.join(rules)}" in page.read_text() and len(rules) > 2
    asked = (*GIVEN, "--hold", "pp=2", "--hold", "vp=17", "--why-not", "tp=2", *out)
    assert hcp(*asked, cwd=root).returncode == 0
    text = html.unescape(page.read_text())
    words = planned(hcp, root, *asked)["layouts"][0]["overrides"]["mlm"]
    pasted = next(block for block in re.findall("<pre>(.*?)</pre>", text, re.S) if "--tensor" in block)
    assert pasted == shlex.join(words) != " ".join(words)
    assert "why not tp 2 without recomputation: " in text


def test_parts_beyond_the_colours_of_a_page_are_drawn_as_one(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    terms = {f"kept: part {number}": 1.0 for number in range(15)}
    data = planned(hcp, root, *GIVEN, "--layout", "tp=2 cp=8")
    data["layouts"][0]["memory_gib"]["terms"] = terms | {"weights": 2.0}
    picture = ElementTree.fromstring(render_plan(data))
    texts = [item.text for item in picture.iter() if item.tag.endswith("title")]
    assert "weights: 2" in texts and "other parts: 5" in texts
    assert sum(str(text).startswith("activations of part") for text in texts) == 10


def test_the_picture_names_every_layout_of_the_frontier_in_full(hcp: Hcp, root: Path) -> None:
    data = planned(hcp, root, *GIVEN)
    data["frontier"].append({**data["frontier"][-1], "layout": data["frontier"][-1]["layout"] | {"pp": 16, "vp": 80}})
    picture = ElementTree.fromstring(render_plan(data))
    left = [item for item in picture.iter() if item.tag.endswith("text") and " GiB: " in str(item.text)]
    assert [str(item.text).partition(" GiB: ")[2] for item in left] == [
        brief_text(i["layout"]) for i in data["frontier"]
    ]
    assert all(item.get("x") == left[0].get("x") for item in left) and int(left[0].get("x", "0")) <= 0


NUMBER = (int, float)
QWEN3_30B = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "legal", "fits"),
    [
        ("tp=1 pp=2 cp=1 vp=8 ep=32 mbs=1 recompute=full", True, True),
        ("tp=2 pp=2 cp=4 vpp=8 ep=32 etp=1 mbs=1 cp_comm_type=a2a+p2p hcp_sizes=2,2", True, True),
        ("tp=1 pp=2 cp=1 vp=8 ep=3 mbs=1", False, False),
        ("tp=1 pp=1 cp=1 ep=2 mbs=4", True, False),
    ],
)
def test_the_contract_of_issue_17(hcp: Hcp, root: Path, layout: str, legal: bool, fits: bool, tmp_path: Path) -> None:
    """What other programs read, by name and type, of a legal layout, an illegal one and one too large."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_30B))
    job = ("--gpus", "64", "--gpu", "h100", "--seq-length", "8192", "--global-batch", "256")
    done = hcp("plan", "--model", str(tmp_path), *job, "--layout", layout, "--format", "json", cwd=root)
    assert done.returncode == 0 and done.stderr == ""
    data = json.loads(done.stdout)
    (item,) = data["layouts"]
    assert data["schema"] == "hcp.plan/1" and (item["legal"], item["fits"]) == (legal, fits)
    given = dict(word.split("=") for word in layout.replace("vpp", "vp").split())
    said = item["layout"] | {"hcp_sizes": ",".join(map(str, item["layout"]["hcp_sizes"] or ()))}
    assert all(str(said[name]) == value for name, value in given.items())
    assert bool(item["rules"]) is not legal and all(rule in BY_ID for rule in item["rules"])
    numbers = [item[name] for name in ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "band")]
    assert isinstance(item["marks"], list)
    if not legal:
        assert numbers == [None] * 4 and item["memory_gib"] is None
        return
    assert all(isinstance(number, NUMBER) and number > 0 for number in numbers) and item["band"] < 1
    held = item["memory_gib"]
    assert sum(held["terms"].values()) == pytest.approx(held["peak"])
    assert fits is (held["peak"] <= held["usable"]) is (held["over"] == 0)


TE_LOSS = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"


@pytest.mark.parametrize(("release", "writes"), [("0.17.1", True), ("0.19.0", False)])
def test_the_words_of_transformer_engines_loss_are_written_for_releases_that_take_it(
    hcp: Hcp, root: Path, release: str, writes: bool
) -> None:
    # validate_args of 0.19 refuses them: "Transformer Engine cross entropy loss fusion is disabled …".
    (layout,) = planned(hcp, root, *GIVEN, "--layout", "tp=8 cp=4", "--assume", f"mcore={release}")["layouts"]
    words = " ".join(layout["overrides"]["mlm"])
    assert (TE_LOSS in words) == writes and ("cross_entropy_fusion_impl=te" in str(layout["overrides"])) == writes
    refused = hcp("check", "--assume", f"mcore={release}", "--select", "START001", "--", *f"{WHOLE} {TE_LOSS}".split())
    assert refused.returncode == (0 if writes else 1)


WHOLE = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 10 --lr 1e-4 --bf16 --vocab-size 32000 "
    "--tokenizer-type NullTokenizer --mock-data"
)


def test_the_plan_of_a_launch_that_a_check_refuses_names_the_finding_in_one_line(hcp: Hcp, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {WHOLE} --fp16\n")
    text = hcp("plan", str(file), "--gpu", "h100").stdout
    (line,) = (line for line in text.splitlines() if line.startswith("refused"))
    (name,) = planned(hcp, tmp_path, "plan", str(file), "--gpu", "h100")["refused"]
    assert name.startswith("START001/validate_args/bf16-") and name in line
    file.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {WHOLE}\n")
    assert "refused" not in planned(hcp, tmp_path, "plan", str(file), "--gpu", "h100")
    again = hcp("plan", str(file), "--gpu", "h100", "--layout", "tp=2").stdout
    assert "refused" not in again, "another layout is asked about"
