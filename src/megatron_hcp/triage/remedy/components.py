"""Which part of the software an exception comes from, by its module's path; how a missing module is installed."""

from __future__ import annotations

import re

_PLUMBING = re.compile(
    r"torch/(?:nn/modules/module|_ops|utils/_contextlib|autograd|distributed/elastic)|"
    r"python3\.\d{1,2}/(?!(?:site|dist)-packages)|torch/_utils\.py|<frozen|<__array|<string>|concurrent/futures|runpy|importlib"
)
"""Frames that every call passes."""
_NEAREST = 4


_COMPONENTS = (
    (
        re.compile(r"optimizer_param_scheduler"),
        "the learning-rate schedule",
        "warm-up shorter than decay; on a resume --override-opt_param-scheduler takes the launch's values, "
        "--use-checkpoint-opt_param-scheduler the checkpoint's",
    ),
    (
        re.compile(r"dist_checkpointing|distributed/checkpoint/|checkpoint(?:ing)?\w{0,20}\.py|ckpt\w{0,20}\.py"),
        "checkpoints",
        "the checkpoint's folder (complete, its last iteration), and the sizes, options and versions of the run that "
        "wrote it",
    ),
    (
        re.compile(r"(?i)convert|conversion|hf2m|mbridge|megatron/bridge/models|hf_to|to_hf"),
        "the conversion of weights",
        "does it know this model, its extra keys (_extra_state, biases, tied embeddings) and the parallel sizes?",
    ),
    (
        re.compile(r"reward|verifier|grader|scor(?:e|ing)"),
        "the reward function",
        "does the data's data_source have a built-in one? else give custom_reward_function.path and .name; does it "
        "bear any answer, an empty one too?",
    ),
    (
        re.compile(
            r"(?:^|/)datasets?/|dataset\w{0,20}\.py|data_?loader\w{0,20}\.py|collat|sampler|data_utils|utils/data/"
        ),
        "the data",
        "the data files, their paths, columns, and lengths; which sample is it?",
    ),
    (
        re.compile(r"(?:^|/)(?:vllm|sglang)/|rollout"),
        "the rollout engine",
        "does its release know this model and these options? vllm and sglang fit one release of torch and of the "
        "framework each",
    ),
    (
        re.compile(r"transformer_engine/(?:common/)?__init__|_load_library"),
        "Transformer Engine's installation",
        "remove all transformer-engine packages, then pip install --no-build-isolation transformer_engine[pytorch]",
    ),
    (
        re.compile(r"transformer_engine/pytorch/attention|(?:^|/)flash_attn|attention\w{0,20}\.py|fused_attn"),
        "attention",
        "its inputs (types, layout, mask, head size, packing) against what the backend in use takes; NVTE_DEBUG=1 "
        "NVTE_DEBUG_LEVEL=2 says which one that is",
    ),
)
"""Of a part: what a frame's path or function holds, what it is, and what to look at there."""


def is_plumbing(frame: str) -> bool:
    """Whether a frame says nothing of where an exception comes from."""
    return _PLUMBING.search(frame) is not None


def component_of(frames: tuple[str, ...]) -> tuple[str, str] | None:
    """The part and what to look at there, by the frames nearest to an exception, the innermost first."""
    for frame in [frame for frame in frames if not is_plumbing(frame)][:_NEAREST]:
        if found := next(((part, look) for pattern, part, look in _COMPONENTS if pattern.search(frame)), None):
            return found
    return None


_PACKAGE = re.compile(r"(?:site|dist)-packages/(\w{2,40})/")
_NAMED_OTHERWISE = {"megatron": "megatron-core", "swift": "ms-swift", "PIL": "pillow", "cv2": "opencv-python"}


def distribution(module: str) -> str:
    """What pip calls the package of a module, as far as its name says."""
    top = module.partition(".")[0]
    return _NAMED_OTHERWISE.get(top, top.replace("_", "-"))


def package_of(file: str) -> str:
    """The installed package that a file is of, as pip calls it; empty for others."""
    found = _PACKAGE.search(file)
    return distribution(found[1]) if found else ""


_INSTALLS = {
    "megatron.training": (
        "put a checkout of Megatron-LM on PYTHONPATH (MEGATRON_LM_PATH): the wheel megatron-core has no "
        "megatron.training"
    ),
    "megatron.legacy": (
        "put a checkout of Megatron-LM before 0.16 on PYTHONPATH: newer ones and the wheel have no megatron.legacy"
    ),
    "megatron.bridge": "pip install megatron-bridge",
    "megatron": "pip install megatron-core, or put a checkout of Megatron-LM on PYTHONPATH",
    "transformer_engine": "pip install --no-build-isolation transformer_engine[pytorch]",
    "transformer_engine_torch": "pip install --no-build-isolation transformer_engine[pytorch]",
    "apex": "build NVIDIA's apex (with --cpp_ext --cuda_ext); the apex of PyPI is another package",
    "fused_layer_norm": "build NVIDIA's apex with --cpp_ext --cuda_ext",
    "amp_C": "build NVIDIA's apex with --cpp_ext --cuda_ext",
    "flash_attn": "pip install --no-build-isolation flash-attn",
    "flash_attn_3": "build FlashAttention's hopper folder",
    "flash_attn_interface": "build FlashAttention's hopper folder",
    "fla": "pip install flash-linear-attention",
    "causal_conv1d": "pip install --no-build-isolation causal-conv1d",
    "selective_scan": "pip install --no-build-isolation mamba-ssm",
    "mamba_ssm": "pip install --no-build-isolation mamba-ssm",
    "nvidia_resiliency_ext": "pip install nvidia-resiliency-ext",
    "pkg_resources": "pip install 'setuptools<81'",
    "yaml": "pip install pyyaml",
    "cv2": "pip install opencv-python-headless",
    "PIL": "pip install pillow",
    "sklearn": "pip install scikit-learn",
    "swift": "pip install ms-swift",
    "helpers": "make in megatron/core/datasets, or pip install megatron-core, which has it built",
    "helpers_cpp": "make in megatron/core/datasets, or pip install megatron-core, which has it built",
    "fused_adam": (
        "DeepSpeed's FusedAdam was not built: DS_BUILD_FUSED_ADAM=1 pip install deepspeed, with the CUDA toolkit"
    ),
    "hydra": "pip install hydra-core (the hydra of PyPI is another package; a folder of that name hides it)",
}


def install_text(module: str) -> str:
    """How a missing module gets into the job's environment; by its name, or the longest part of it that is known."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        if found := _INSTALLS.get(".".join(parts[:count])):
            return f"{found} (in the environment that the job runs in, on every node)"
    if len(parts) > 1:
        return (
            f"the installed {parts[0]} has no {module}: install the release that has it (pip show {parts[0]}), or, if "
            "it is your own, put its folder on PYTHONPATH"
        )
    return (
        f"pip install {module.replace('_', '-')} in the environment that the job runs in, on every node; if {module} "
        "is a folder of your own, put its parent on PYTHONPATH"
    )
