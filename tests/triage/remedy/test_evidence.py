"""Advice rests on what an exception's text and frames name: packages, figures, owners of keys, options, files."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from support.logs import write_logs

HEAD = "Traceback (most recent call last):\n"


def _steps(tmp_path, *frames, said):
    shown = "".join(f'  File "{path}", line {line}, in {name}\n    {code}\n' for path, line, name, code in frames)
    failure = diagnosis_json(triage(write_logs(tmp_path, a_log=HEAD + shown + said + "\n"), CpPlan()), None)
    return failure["first_failure"]["next"]


OWN = ("/srv/u/run/train.py", 12, "main", "fit(model, batch)")
_SAVE = ("/srv/u/run/train.py", 12, "save", "torch.save(state, path)")


@pytest.mark.parametrize(
    ("frame", "said", "named"),
    [
        (
            OWN,
            "ImportError: /e/site-packages/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c1",
            ["flash_attn was built", "flash-attn"],
        ),
        (
            OWN,
            "ImportError: /e/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
            ["ncclCommWindowRegister", "LD_LIBRARY_PATH"],
        ),
        (OWN, "RuntimeError: world size 4 cannot be split into pipelines of 3 stages", ["`world size 4`, `3 stages`"]),
        (("t.py", 3, "f", "n[k] -= ref[k]"), "KeyError: 'math'", ["`n` or `ref`"]),
        (("t.py", 3, "f", "x = batch[names['ids']]"), "KeyError: 'ids'", ["`names`"]),
        (
            ("t.py", 3, "f", "F.pad(x)"),
            "AttributeError: 'builtin_function_or_method' object has no attribute 'pad'",
            ["bound"],
        ),
        (("t.py", 3, "f", "x = d.shape"), "AttributeError: 'dict' object has no attribute 'shape'", ["a plain dict"]),
        (
            ("t.py", 3, "f", "doc['text']"),
            "TypeError: string indices must be integers",
            ["wants a dict", "doc['text']"],
        ),
        (("t.py", 3, "f", "F.conv3d(x)"), "RuntimeError: ptrDesc->finalize()", ["cuDNN", "F.conv3d(x)"]),
        (OWN, "ValueError: need at least one array to concatenate", ["what fills the list", "fit(model, batch)"]),
        (OWN, "RuntimeError: Error 804: forward compatibility was attempted", ["nvidia-smi shows", "cuda-compat"]),
        (OWN, "ConfigKeyError: Key 'offl' not in 'HFModelConfig'", ["HFModelConfig of this release has no offl"]),
        (OWN, "ConfigAttributeError: Missing key train", ["asks for train"]),
        (
            OWN,
            "t.py: error: argument --sched: invalid choice: 'x' (choose from 'linear', 'cosine')",
            ["--sched", "linear"],
        ),
        (OWN, "t.py: error: argument --fp8: ignored explicit argument 'true'", ["correct --fp8", "a value at all"]),
        (OWN, "t.py: error: unrecognized arguments: --nope 1", ["remove or rename --nope 1"]),
        (("t.py", 3, "f", "assert len(records) > 0"), "AssertionError", ["`records` is empty at t.py:3"]),
        (("t.py", 3, "f", "assert len(a) == len(b)"), "AssertionError", ["look at `assert len(a) == len(b)`"]),
        (OWN, "ValueError: config is bad. Unknown process type: diffusion", ["knows no process type diffusion"]),
        (OWN, "ValueError: Not enough GPUs available. Requested 16 GPUs, but only 8 are available.", ["ray status"]),
        (OWN, "t.py: error: unrecognized arguments: --local_rank=1", ["the launcher adds --local_rank", "torchrun"]),
        (
            OWN,
            "RuntimeError: start (0) + length (512) exceeds dimension size (0).",
            ["a tensor is empty in `fit(model, batch)`", "without gathering"],
        ),
        (
            OWN,
            "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set",
            ["instruct"],
        ),
        (
            ("/e/gpt-neox/adapter.py", 3, "f", "x = self.model.is_pipe"),
            "ModuleAttributeError: 'DeepSpeedEngine' object has no attribute 'is_pipe'",
            ["DeepSpeedEngine wraps the model", ".module.is_pipe"],
        ),
        (_SAVE, "OSError: [Errno 116] Stale file handle", ["train.py:12 in save", "Stale file handle"]),
        (
            OWN,
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nImportError: cannot import name "
            "'triton_key' from 'triton.compiler' (/e/site-packages/triton/compiler.py)",
            ["`triton_key`", "pip show triton"],
        ),
        (
            OWN,
            "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied",
            ["/run/enroot (Permission denied)", "ENROOT_RUNTIME_PATH"],
        ),
    ],
)
def test_the_first_step_names_what_the_log_names(tmp_path, frame, said, named):
    steps = _steps(tmp_path, frame, said=said)
    assert [word for word in named if word not in steps[0]] == [], steps[0]


def test_the_user_is_led_to_what_a_package_is_given(tmp_path):
    inner = ("/e/site-packages/karst/layer.py", 9, "forward", "return op(x)")
    steps = _steps(tmp_path, OWN, inner, said="RuntimeError: bad state")
    assert "passes to karst" in steps[0] and "train.py:12" in steps[0] and "pip show karst" in steps[0]


def test_the_source_line_above_an_exception_is_read_without_its_frame(tmp_path):
    log = "    assert last_num < (num_samples + 1), \\\n{}AssertionError: too many.\n"
    for between, is_read in (("", True), ("some other line\n", False)):
        failure = diagnosis_json(triage(write_logs(tmp_path, a_log=log.format(between)), CpPlan()), None)[
            "first_failure"
        ]
        assert ("`last_num`, `num_samples`" in failure["next"][0]) == is_read


def test_a_page_of_documentation_is_no_advice_of_the_exception(tmp_path):
    assert not any(
        "documentation" in step for step in _steps(tmp_path, OWN, said="ValueError: no. See the documentation at x")
    )


def test_what_has_no_traceback_has_its_step_too(tmp_path):
    said = "TypeError: Model.forward() got an unexpected keyword argument 'labels'\n"
    steps = diagnosis_json(triage(write_logs(tmp_path, a_log=said), CpPlan()), None)["first_failure"]["next"]
    assert steps[0].startswith("the line that raised it passes `labels` to Model.forward")


def test_a_key_that_the_trainer_drops_is_named_as_such(tmp_path):
    frames = [("/e/site-packages/transformers/trainer.py", 9, "train", "loop()"), ("t.py", 3, "f", "x = feature['n']")]
    assert "remove_unused_columns=False" in _steps(tmp_path, *frames, said="KeyError: 'n'")[0]
    assert "remove_unused_columns" not in _steps(tmp_path, frames[1], said="KeyError: 'n'")[0]


def test_no_part_of_the_program_answers_for_a_device(tmp_path):
    frame = ("/srv/u/ckpt/checkpoint.py", 3, "f", "torch.cuda.Stream()")
    steps = _steps(tmp_path, frame, said="RuntimeError: CUDA error: operation not permitted")
    assert len(steps) == 1 and "operation not permitted" in steps[0]
