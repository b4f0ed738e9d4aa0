"""What an exception's type, text and traceback say is to be changed: each step names what the log itself names."""

import re

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.remedy.components import component_of
from megatron_hcp.triage.remedy.correction import corrections, records
from megatron_hcp.triage.report import diagnosis_json
from support.logs import write_logs

HEAD = "Traceback (most recent call last):\n"


def _frame(path, line, name, code):
    return f'  File "{path}", line {line}, in {name}\n    {code}\n'


def _steps(tmp_path, *frames, said):
    log = HEAD + "".join(_frame(*frame) for frame in frames) + said + "\n"
    failure = diagnosis_json(triage(write_logs(tmp_path, a_log=log), CpPlan()), None)["first_failure"]
    return failure["next"]


OWN = ("/srv/u/run/train.py", 12, "main", "fit(model, batch)")


@pytest.mark.parametrize(
    ("frame", "said", "named"),
    [
        (OWN, "NameError: name 'carry' is not defined", ["`carry`", "train.py:12"]),
        (OWN, "UnboundLocalError: local variable 'loss' referenced before assignment", ["`loss`", "train.py:12"]),
        (
            OWN,
            "ImportError: cannot import name 'mtp' from 'megatron.core.x' (/e/site-packages/megatron/core/x.py)",
            ["`mtp`", "pip show megatron-core"],
        ),
        (
            OWN,
            "ImportError: cannot import name 'mtp' from 'fjord' (/srv/u/run/fjord.py)",
            ["/srv/u/run/fjord.py, in use", "alike on all nodes"],
        ),
        (OWN, "ModuleNotFoundError: No module named 'amp_C'", ["apex", "--cuda_ext", "train.py:12"]),
        (OWN, "ModuleNotFoundError: No module named 'megatron.training'", ["PYTHONPATH", "Megatron-LM"]),
        (OWN, "ModuleNotFoundError: No module named 'qqzz'", ["pip install qqzz"]),
        (
            OWN,
            "AttributeError: module 'transformer_engine' has no attribute 'pytorch'",
            ["without its part for pytorch", "transformer_engine[pytorch]"],
        ),
        (
            OWN,
            "ValueError: The shape must match the shape of target shape: [512, 3], but now shape is [513, 3].",
            ["a sample gives 513 entries where 512", "train.py:12"],
        ),
        (OWN, "AttributeError: module 'te.x' has no attribute 'y'", ["`y`", "pip show te"]),
        (OWN, "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'", ["build for CPUs"]),
        (("t.py", 3, "f", "p = val.to(dtype)"), "AttributeError: 'NoneType' object has no attribute 'to'", ["`val`"]),
        (("t.py", 3, "f", "x = args.cp"), "AttributeError: 'Namespace' object has no attribute 'cp'", ["key `cp`"]),
        (("t.py", 3, "f", "x = cfg['lr']"), "KeyError: 'lr'", ["`cfg`", "key lr", "configuration"]),
        (("t.py", 3, "f", "x = batch['ids']"), "KeyError: 'ids'", ["`batch`", "key ids", "column"]),
        (("t.py", 3, "f", "x = torch.tensor(doc['ids'])"), "KeyError: 'ids'", ["`doc`", "column"]),
        (("t.py", 3, "__getitem__", "x = self.config['ids']"), "KeyError: 'ids'", ["configuration"]),
        (("t.py", 3, "f", "x = os.environ['RUN_ID']"), "KeyError: 'RUN_ID'", ["environment variable RUN_ID"]),
        (OWN, "FileNotFoundError: [Errno 2] No such file or directory: 'a/b.txt'", ["a/b.txt", "working directory"]),
        (OWN, "FileNotFoundError: [Errno 2] No such file or directory: '/a/b.txt'", ["ls -ld /a/b.txt"]),
        (OWN, "FileNotFoundError: no shards under /data/none/x", ["look into /data/none/x"]),
        (OWN, "PermissionError: [Errno 13] Permission denied: '/data/x'", ["right to /data/x"]),
        (OWN, "PermissionError: [Errno 13] Permission denied: '/srv/a/.cache/x'", ["HF_HOME"]),
        (
            ("s.py", 5, "__init__", "assert self.warm_up < self.all_steps"),
            "AssertionError",
            ["`warm_up`", "`all_steps`"],
        ),
        (OWN, "ValueError: num_layers must be a multiple of pipeline_size", ["`num_layers`", "`pipeline_size`"]),
        (OWN, "TypeError: save() got an unexpected keyword argument 'is_best'", ["`is_best`", "train.py:12", "save"]),
        (OWN, "TypeError: f() missing 1 required positional argument: 'mask'", ["'mask'", "train.py:12"]),
        (
            ("t.py", 3, "f", "n = (args.train_iters // args.eval_interval + 1) * 2"),
            "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'",
            ["`args.eval_interval` is None"],
        ),
        (OWN, "IndexError: index out of range in self", ["vocab_size"]),
        (("te/__init__.py", 3, "f", "p = next(d.glob(n))"), "StopIteration", ["no file matches"]),
        (("dataloader.py", 3, "_next_data", "raise StopIteration"), "StopIteration", ["the data ended"]),
        (OWN, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x24 and 16x4)", ["8x24", "16x4"]),
        (
            OWN,
            "RuntimeError: The size of tensor a (63) must match the size of tensor b (59) at non-singleton dimension 3",
            ["dimension 3 is 63", "59"],
        ),
        (OWN, "RuntimeError: expected scalar type Float but found BFloat16", ["Float meets BFloat16", "train.py:12"]),
        (
            OWN,
            "RuntimeError: Error(s) in loading state_dict for M: size mismatch for emb.w: copying a param with shape "
            "torch.Size([512, 96]) from checkpoint, the shape in current model is torch.Size([512, 64]).",
            ["emb.w is torch.Size([512, 96])", "torch.Size([512, 64]) in the model"],
        ),
        (
            OWN,
            "AssertionError: tensor_size value from checkpoint (1) is not equal to the input argument value (2).",
            ["set tensor_size to 1"],
        ),
        (
            OWN,
            "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
            ["no_grad()"],
        ),
        (
            OWN,
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and "
            "cuda:1!",
            ["one tensor is on cpu, another on cuda:1"],
        ),
        (
            OWN,
            "RuntimeError: [enforce fail at alloc_cpu.cpp:1] you tried to allocate 70368744177664 bytes",
            ["wrongly"],
        ),
        (OWN, "RuntimeError: The tree is dirty. Commit or stash your changes first.", ["Commit or stash your changes"]),
        (OWN, "ValueError: bad backend 'x'. Valid backends are: ['A', 'B']", ["['A', 'B']"]),
        (
            ("s.py", 5, "f", "x = min(times)"),
            "ValueError: min() arg is an empty sequence",
            ["`x = min(times)`", "s.py:5", "the warm-up or the interval"],
        ),
        (
            OWN,
            "RuntimeError: cannot reshape tensor of 0 elements into shape [2, 0, -1, 64] because it is ambiguous",
            ["[2, 0, -1, 64]", "parallel size"],
        ),
        (OWN, "AssertionError: pipeline parallel group is not initialized", ["torchrun", "train.py:12"]),
        (
            OWN,
            "ValueError: Size of available data is not a multiple of the data-type size.",
            ["size of the file", "train.py:12"],
        ),
        (OWN, "ValueError: Expected 8 elements, could only read 6 elements.", ["size of the file", "train.py:12"]),
        (OWN, "AssertionError: model file /srv/m/a.json is not usable", ["/srv/m/a.json", "train.py:12"]),
        (OWN, "ValueError: Columns ['labels'] not in the dataset", ["'labels'", "train.py:12"]),
        (OWN, "AssertionError: no plan for it", ["train.py:12", "`fit(model, batch)`"]),
        (
            OWN,
            "RuntimeError: x requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1\n"
            "\x1b[93m [WARNING] \x1b[0m gds: please install the libaio-dev package with apt",
            ["CUDA_DEVICE_MAX_CONNECTIONS to 1"],
        ),
        (OWN, "RuntimeError: seq_idx is only supported for channel last layout", ["channel last layout"]),
        (
            OWN,
            "EOFError: Compressed file ended before the end-of-stream marker was reached",
            ["the file that", "train.py:12", "cut off"],
        ),
        (
            OWN,
            "SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
            ["the file that", "cut off"],
        ),
        (OWN, "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 98 vs 82", ["ulimit -f"]),
        (OWN, "OSError: [Errno 27] File too large", ["ulimit -f", "train.py:12"]),
        (OWN, "RuntimeError: Resource temporarily unavailable", ["ulimit -u"]),
        (OWN, "sqlite3.OperationalError: database is locked", ["SQLite", "fuser"]),
        (
            OWN,
            "PermissionError: [Errno 13] Permission denied: '/srv/e/bin/python3.11'",
            ["/srv/e/bin/python3.11", "execute"],
        ),
        (
            OWN,
            "MisconfigurationException: `ModelCheckpoint(monitor='val_acc')` could not find the monitored key in the "
            "returned metrics: ['loss', 'val/acc']. HINT: Did you call `log('val_acc', value)`?",
            ["['loss', 'val/acc']", "monitor"],
        ),
        (
            OWN,
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--evaluation_strategy']",
            ["'--evaluation_strategy'", "eval_strategy"],
        ),
    ],
)
def test_the_first_step_names_what_the_log_names(tmp_path, frame, said, named):
    step = _steps(tmp_path, OWN, frame, said=said)[0]
    assert [text for text in named if text not in step] == [], step


@pytest.mark.parametrize("name", ["AssertionError", "ValueError", "RuntimeError"])
@pytest.mark.parametrize("said", ["no plan for it", "bad num_layers here", "the file /a/b.json is odd"])
def test_no_step_only_says_the_error_again(tmp_path, name, said):
    steps = _steps(tmp_path, OWN, said=f"{name}: {said}")
    named = [text for text in ("num_layers", "/a/b.json") if text in said]
    assert (
        steps
        and all(text in steps[0] for text in ("train.py:12", *named))
        and not [step for step in steps if said in step]
    )


def test_a_warning_below_an_exception_asks_for_nothing_of_it(tmp_path):
    said = "RuntimeError: it broke\n\x1b[93m [WARNING] \x1b[0m gds: please install the libaio-dev package with apt"
    assert not [step for step in _steps(tmp_path, OWN, said=said) if "libaio" in step]
    assert [step for step in _steps(tmp_path, OWN, said=said.replace("[WARNING]", "")) if "libaio" in step]


def test_a_syntax_error_is_told_at_its_line(tmp_path):
    log = HEAD + "  File \"/u/run/train.py\", line 5\n    if x\n        ^\nSyntaxError: expected ':'\n"
    failure = diagnosis_json(triage(write_logs(tmp_path, a_log=log), CpPlan()), None)["first_failure"]
    assert "run/train.py:5" in failure["next"][0] and "train.py:5" in failure["cause"]


def test_what_refuses_is_told_by_the_call_that_it_refused(tmp_path):
    frames = [OWN, ("/x/site-packages/transformers/trainer.py", 9, "__init__", 'raise ValueError("no")')]
    step = _steps(tmp_path, *frames, said="ValueError: the data has no length")[0]
    assert "`fit(model, batch)`" in step and "run/train.py:12" in step


def test_what_stands_in_a_log_is_no_place_to_fill(tmp_path):
    step = _steps(tmp_path, OWN, said="NameError: name '{node}{at}' is not defined")[0]
    assert "`{node}{at}`" in step


def test_the_part_of_the_software_follows_from_the_nearest_frame_that_tells():
    found = component_of(("torch/nn/modules/module.py, in _call_impl", "megatron/core/datasets/gpt.py, in get"))
    assert found and found[0] == "the data"
    assert component_of(("torch/nn/modules/module.py, in _call_impl", "x.py, in f")) is None
    assert component_of(("megatron/training/training.py, in build_train_valid_test_data_loaders",)) is None


def test_each_row_says_what_to_do_or_why_and_names_only_what_it_can_know():
    known = {
        "at",
        "call",
        "called",
        "source",
        "said",
        "names",
        "asker",
        "function",
        "node",
        "look",
        "install",
        "package",
        "memory",
        "owner",
        "stated",
    }
    for row in corrections():
        assert row.why or row.step, row.shape.pattern
        groups = set(row.shape.groupindex) | set(row.code.groupindex if row.code else ())
        assert set(re.findall(r"{(\w+)}", row.step)) <= known | groups, row.step
    fields = {"raises", "text", "code", "where", "signature", "why", "why at first", "do", "alone", "instead"}
    assert all(record.keys() <= fields for record in records("corrections.txt"))


def test_a_wrapped_frame_is_no_exception(tmp_path):
    """Its own name for what was raised, which only the end of the traceback shows, is read."""
    log = (
        HEAD
        + '  File "/usr/lib/python3/dist-packages/x/elastic_agent/ckpt_saver.py", line 4, in save_st\nep\n    go()\n'
        '  File "x.py", line 9, in go\n    return os.listdir(path)\nx.agent.StreamClosed: it broke\n'
    )
    failure = triage(write_logs(tmp_path, a_log=log), CpPlan()).failure
    assert failure and failure.message == "x.agent.StreamClosed: it broke"


def test_a_step_names_the_part_of_the_software_that_raised_it(tmp_path):
    frame = ("/x/megatron/core/datasets/gpt_dataset.py", 9, "build", "self.index[0]")
    assert "it comes from the data: " in " ".join(_steps(tmp_path, OWN, frame, said="RuntimeError: it broke"))
    assert "it comes from" not in " ".join(_steps(tmp_path, OWN, said="RuntimeError: it broke"))


def test_of_a_hub_whose_name_is_not_known_the_files_are_fetched_before_the_job(tmp_path):
    asked = "'[Errno -2] Name or service not known' thrown while requesting HEAD https://huggingface.co/a/b\n"
    said = "httpx.ConnectError: [Errno -2] Name or service not known\n"
    texts = [
        diagnosis_json(triage(write_logs(tmp_path, **{name: log + HEAD + _frame(*OWN) + said}), CpPlan()), None)
        for name, log in (("a_log", asked), ("b_log", ""))
    ]
    hub, other = (" ".join(text["first_failure"]["next"]) for text in texts)
    assert "fetch the files before the job" in hub
    assert "the server" not in hub
    assert "fetch" not in other
