"""Knowledge has a date: what a verdict says of releases that nobody read, and a replay with less read than today."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from megatron_hcp.cli.reports.text import report_lines
from megatron_hcp.cli.screen import safe_text
from megatron_hcp.judge.age import UNREAD_EFFECTS, ages_of
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.facts import last_read as table
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.upstream import upstreams_of
from megatron_hcp.rules.known.row import KNOWN, Known, at_version, rule_of_row, spans_of
from megatron_hcp.rules.registry import BY_ID, RULES, rules_for
from support.rows import rows
from support.rules import example, launch

ReadUntil = Callable[[str, str], None]
ROWS: tuple[Known, ...] = tuple(KNOWN[rule.id] for rule in RULES if rule.id in KNOWN)
GATHERED = (
    "--context-parallel-size 2 --cp-comm-type all_gather --sft --calculate-per-token-loss --num-attention-heads 8 "
    "--no-create-attention-mask-in-dataloader --attention-backend flash"
)
SINKS = "--context-parallel-size 2 --cp-comm-type p2p --softmax-type learnable --num-attention-heads 8"
HEADS = "--context-parallel-size 2 --cp-comm-type a2a --num-attention-heads 9"


@pytest.fixture
def read_until(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadUntil]:
    """Sets the table back: of a package, only releases up to a version were read, and no branch."""

    def set_back(package: str, version: str) -> None:
        text = Path(table._FILE).read_text(encoding="utf-8")
        rows = [row for row in table.parse(text) if row.package != package or row.revision == "release"]
        rows = [row._replace(version=version) if row.package == package else row for row in rows]
        file = tmp_path / "last_read.txt"
        file.write_text(table.written(text, rows), encoding="utf-8")
        monkeypatch.setattr(table, "_FILE", str(file))
        table.last_read.cache_clear()

    yield set_back
    monkeypatch.undo()
    table.last_read.cache_clear()


def older(version: str) -> str:
    """A version below this one.

    >>> older("0.17"), older("2.20.2"), older("3.0.0")
    ('0.16.99', '2.20.1', '2.99.99')
    """
    major, minor, micro = (*map(int, version.split(".")), 0, 0)[:3]
    if micro:
        return f"{major}.{minor}.{micro - 1}"
    return f"{major}.{minor - 1}.99" if minor else f"{major - 1}.99.99"


def text_of(report: Report) -> str:
    return safe_text(report_lines(report))


MENDED = [(row.id, span.mended) for row in ROWS for span in spans_of(row.versions)[-1:] if span.mended]
BEGUN = [(row.id, span.since) for row in ROWS for span in spans_of(row.versions)[:1] if span.since]


def test_the_replay_has_enough_rows() -> None:
    assert len(MENDED) >= 40 and len(BEGUN) >= 40


@rows("known, mended", MENDED)
def test_before_a_fix_was_read_its_release_is_not_called_faulty(read_until: ReadUntil, known: str, mended: str) -> None:
    row = KNOWN[known]
    since = spans_of(row.versions)[-1].since or "0"
    as_it_was = rule_of_row(row._replace(versions=f">={since}", good=row.launch))
    read_until(row.package, older(mended))
    report = check_launch(example(at_version(row.launch, row.package, mended)), (as_it_was,), fixes=False)
    (finding,) = report.findings
    assert finding.severity == "info" and finding.problem.message.startswith(f"not read: last read {older(mended)}")
    assert report.verdict == ("undecided" if finding.effect in UNREAD_EFFECTS else "ok")


@rows("known, since", BEGUN)
def test_before_a_fault_was_read_a_verdict_on_its_release_says_that_it_was_not_read(
    read_until: ReadUntil, known: str, since: str
) -> None:
    row = KNOWN[known]
    read_until(row.package, older(since))
    report = check_launch(example(at_version(row.launch, row.package, since)), ())
    assert f"{since} was not read (last read: {older(since)}" in text_of(report)


@rows("known", [row.id for row in ROWS])
def test_what_was_read_is_judged_as_ever(known: str) -> None:
    report = check_launch(example(BY_ID[known].bad), (BY_ID[known],), fixes=False)
    (finding,) = report.findings
    assert finding.severity == BY_ID[known].severity and "not read" not in text_of(report)


@pytest.mark.parametrize("te", ["2.20.3", "2.21.0", "3.0"])
def test_a_silent_fault_in_an_unread_release_is_a_note_and_leaves_the_launch_undecided(te: str) -> None:
    report = check_launch(launch("mlm", GATHERED, f"te={te} flash_attn=2.8.3"), rules_for)
    known = next(finding for finding in report.findings if finding.rule.id == "KNOWN017")
    assert (known.severity, known.effect, report.verdict) == ("info", "silent", "undecided")
    assert [item.needs for item in report.undecided] == [("te",)]
    assert known.fixes and report.failed(strict=True)


def test_an_error_outranks_what_was_not_read() -> None:
    report = check_launch(
        launch("mlm", f"{GATHERED} --tensor-model-parallel-size 3", "te=2.21 flash_attn=2.8.3"), rules_for
    )
    assert report.verdict == "failed" and report.undecided


def test_a_limit_of_a_release_is_a_note_and_a_rule_about_sizes_stays_an_error_with_its_date() -> None:
    limit = check_launch(launch("mlm", SINKS, "te=2.21.0 arch=sm90 cudnn=9.21"), (BY_ID["CP010"],)).findings[0]
    size = check_launch(launch("mlm", HEADS, "te=2.21.0"), (BY_ID["CP007"],)).findings[0]
    assert limit.severity == "info" and limit.problem.message.startswith("not read: last read 2.20.2")
    assert size.severity == "error"
    assert size.problem.message.endswith("; as of Transformer Engine 2.20.2, the last read")


@pytest.mark.parametrize("assumed", ["", "te=2.20.2", "te=2.14 mcore=0.19.2", "mcore=0.16.1+nv25.11", "te=2.15.0.dev0"])
def test_nothing_is_said_of_releases_that_were_read_or_that_are_not_stated(assumed: str) -> None:
    of = launch("mlm", f"{HEADS} --tensor-model-parallel-size 2", assumed)
    assert ages_of(of) == () and "read" not in text_of(check_launch(of, rules_for))


@pytest.mark.parametrize(
    ("assumed", "said"),
    [
        ("mcore=0.20.0 mcore_branch=main", "a build of main, last read at d98e8a64dd of 2026-08-22"),
        ("mcore=0.20.0.dev3", "a build of main, last read at d98e8a64dd of 2026-08-22"),
        ("mcore=0.19.0 mcore_branch=dev", "a build of dev, last read at d48bd6be0a of 2026-08-21"),
        ("mcore=0.20.0", "0.20.0 was not read (last read: main (0.20.0), d98e8a64dd of 2026-08-22)"),
        ("mcore=0.21.0.dev1", "0.21.0.dev1 was not read (last read: 0.19.2, 2026-09-18)"),
        ("mcore=0.22.0 mcore_branch=dev", "0.22.0 was not read (last read: dev (0.19.0)"),
        ("mcore=0.20.0+d98e8a64", ""),
        ("mcore=0.20.0+gd98e8a64ddf3", ""),
        ("te=2.20.2+b44757633", ""),
        ("nvrx=0.7.0", "nvidia-resiliency-ext 0.7.0 was not read (last read: 0.6.0)"),
    ],
)
def test_a_build_is_dated_by_the_commit_of_its_branch(assumed: str, said: str) -> None:
    ages = ages_of(launch("mlm", HEADS, assumed))
    assert said in "; ".join(map(str, ages)) and bool(ages) == bool(said)


def test_code_that_was_read_from_the_users_own_sources_counts_as_read() -> None:
    of = launch("mlm", GATHERED, "te=2.21.0 flash_attn=2.8.3")
    te = of.facts["te"]._replace(origin="upstream")
    there = build_launch(of.reading, assumed={**of.assumed, "te": te})
    report = check_launch(there, (BY_ID["KNOWN017"],), fixes=False)
    assert report.verdict == "failed" and ages_of(there) == ()


def test_an_accepted_note_leaves_nothing_undecided() -> None:
    script = f"# hcp: ignore=KNOWN017 we looked at 2.21 ourselves\ntorchrun pretrain_gpt.py {GATHERED}\n"
    report = check_launch(launch("mlm", script, "te=2.21.0 flash_attn=2.8.3"), (BY_ID["KNOWN017"],), fixes=False)
    assert [item.rule.id for item in report.accepted] == ["KNOWN017"] and report.verdict == "ok"


FA2 = (
    "class AttnFuncWithCPAndKVAllGather:\n    @staticmethod\n    def forward(ctx):\n"
    '        assert padding, "{} THD format requires padding mask type"\n'
)


@pytest.mark.parametrize(
    ("code", "verdict"), [(FA2, "failed"), (FA2.replace("requires", "takes any"), "undecided"), ("", "undecided")]
)
def test_the_users_own_code_decides_whether_a_fault_is_still_there(tmp_path: Path, code: str, verdict: str) -> None:
    attention = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"
    for name, text in (
        ("transformer_engine/__init__.py", ""),
        ("build_tools/VERSION.txt", "2.21.0\n"),
        (attention, code),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    options = LoadOptions(
        words=tuple(GATHERED.split()), assumes=("flash_attn=2.8.3",), upstream=upstreams_of([str(tmp_path)])
    )
    report = check_launch(load_launch("", options), (BY_ID["KNOWN017"],), fixes=False)
    assert report.launch.facts["te"].value == "2.21.0" and report.verdict == verdict
    assert ages_of(report.launch) == () and "was not read" not in text_of(report)
    if verdict == "undecided":
        assert report.undecided[0].reason == f"{tmp_path} lacks the code that this rule cites"


def test_a_rule_whose_code_a_branch_lacks_is_a_note_there() -> None:
    text = "--dataloader-inter-document-masking --context-parallel-size 2"
    on_main = check_launch(launch("mlm", text, "mcore=0.19.0"), (BY_ID["PACK006"],), fixes=False)
    on_dev = check_launch(launch("mlm", text, "mcore=0.19.0 mcore_branch=dev"), (BY_ID["PACK006"],), fixes=False)
    assert (on_main.verdict, on_dev.verdict) == ("failed", "undecided")
    (finding,) = on_dev.findings
    assert finding.severity == "info" and finding.problem.message.startswith("not read: megatron-core's dev branch")


def test_a_rule_that_a_branch_has_code_for_stays_an_error_there() -> None:
    text = "--context-parallel-size 3 --hybrid-layer-pattern M*M- --hidden-size 1024 --mamba-num-groups 8"
    on_dev = check_launch(launch("mlm", text, "mcore=0.19.0 mcore_branch=dev"), (BY_ID["MODEL001"],), fixes=False)
    assert on_dev.verdict == "failed"
