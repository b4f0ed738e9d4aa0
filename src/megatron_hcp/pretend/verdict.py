"""Whether an exception is upstream's own: only if no stand-in, made-up value or replaced word takes part in it."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from megatron_hcp.pretend.record import RECORD, UpstreamPlace
from megatron_hcp.pretend.stages import PROGRESS
from megatron_hcp.pretend.stand_ins import packages, tensors

_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_OF_THE_RUN = (str(Path(__file__).with_name("run.py")), str(Path(__file__).with_name("stages.py")))
"""What starts and watches the program, and pretends nothing."""
_PASSES_THROUGH = {(module.__file__, module.real_call.__name__) for module in (packages, tensors)}
"""The frames below which an exception is torch's own, or a package's."""
_PACKAGES = ("megatron_hcp.pretend.stand_ins", "megatron_hcp.proofs.te_cpu")
_PROGRAMS = {str(path) for path in Path(__file__).parent.glob("*program.py")}
_MAX_MESSAGE = 600
_READS_DATA = ("megatron/core/datasets/", "megatron/training/datasets/", "megatron/core/tokenizers/",
               "megatron/training/tokenizer/", "megatron/bridge/data/")  # fmt: skip
"""Where upstream reads what is replaced: data and tokenizer."""
_ROUTES = "megatron/core/transformer/moe/"
"""Where tokens go to experts: how many decides the sizes of all that follows there."""
_CAPTURES = ("megatron/core/transformer/cuda_graphs.py", "megatron/core/full_cuda_graph.py",
             "transformer_engine/pytorch/graph.py")  # fmt: skip
"""Where upstream captures CUDA graphs: streams, generators and graphs are pretended, and so is their state."""
_OF_ROLLOUTS = re.compile(r"teacher_log_?probs|rollout_routed_experts|rollout_top_p\w*|multimodal\w*")
"""What a rollout engine returns beside tokens, which made-up rollouts have not."""
_OF_THE_WORLD = r"(?i)world[- _]?size|data[- _]parallel"
_OF_NO_MODEL = ("megatron/core/parallel_state.py", "megatron/core/optimizer_param_scheduler.py")
"""Where groups are made and learning rates are scheduled: nothing of a model takes part."""
_VARIABLE = re.compile(r"\b(?:CUDA|NCCL|NVTE(?!_DEBUG)|NVSHMEM|PYTORCH|TORCH)(?:_[A-Z0-9]+)+\b")
"""An environment variable in a message. NVTE_DEBUG is what Transformer Engine says to run again with."""
_LIMITS = (
    (re.compile(r"find them in the cached files|LocalEntryNotFound|offline mode is enabled|"
                r"Can't load the configuration of"),
     "a model's files, which the cache of Hugging Face has not"),
    (re.compile(r"initialize_ub|UB manager"), "userbuffers"),
    (re.compile(r"does not recognize this architecture"), "a release of transformers that knows the model"),
    (re.compile(r"Read-only file system|Permission denied"), "a folder outside of the run's own, which it can't write"),
    (re.compile(r"No such file or directory|path: '[^']*' not found"), "a file that is not here"),
    (re.compile(r"Failed to import \S+ because"), "a package that can't be imported here"),
    (re.compile(r"(?i)nvidia[-_]resiliency[-_]ext"), "the package nvidia-resiliency-ext"),
    (re.compile(r"DefaultCPUAllocator|can't allocate memory|std::bad_alloc"),
     "memory of this machine, within the run's limit"),
    (re.compile(r"[Mm]eta (tensor|backend|device)|data[- ]dependent|aten::|Unsupported device|unknown parameter type"),
     "an operator of torch for a device without values"),
    (re.compile(r"not compiled with CUDA|accelerator device|No CUDA|CUDA driver|NVIDIA driver|libcuda|ATen_cuda"),
     "a CUDA device"),
    (re.compile(
        r"(?i)(please|must|need to) (be )?install|not (been )?installed|not available|requires? (the )?\w+ package"),
     "a package that is not here"),
)  # fmt: skip


class OfTheLaunch(NamedTuple):
    """What a run has of the launch itself.

    `words`: those that replace or stand for the launch's own. `world`, `model`: whether the number of ranks and the
    model's config.json are the launch's. `variables`: names of the environment variables that it sets.
    """

    words: tuple[str, ...] = ()
    world: bool = True
    model: bool = True
    variables: Collection[str] = ()


_ALL = OfTheLaunch()


def answer(error: BaseException, stated: OfTheLaunch = _ALL) -> dict[str, Any]:
    """What is told about an exception; `missing` says why it decides nothing, and is "" where upstream refused."""
    frames = traceback.extract_tb(error.__traceback__)
    upstream = [frame for frame in frames if RECORD.is_upstream(frame.filename)]
    last = upstream[-1] if upstream else frames[-1] if frames else None
    return {
        "type": type(error).__name__,
        "message": " ".join(str(error).split())[:_MAX_MESSAGE],
        "file": RECORD.shown(last.filename) if last else "",
        "line": (last.lineno or 0) if last else 0,
        "function": last.name if last else "",
        "code": ((last.line or "") if last else "")[:200],
        "missing": _missing(error, stated),
    }


def _missing(error: BaseException, stated: OfTheLaunch) -> str:
    chain = list(_chain(error))
    for why in (*map(_of_a_stand_in, chain), *map(_not_upstreams, chain)):
        if why:
            return why
    if why := _outside_upstream(_codes(error), error):
        return why
    text = str(error)
    if isinstance(error, SystemExit) and (option := _of_another_parser(text)):
        return f"a package that adds the option {option}"
    if not stated.world and (PROGRESS.stage == "groups" or re.search(_OF_THE_WORLD, text)):
        return "the number of ranks, which the launch doesn't state"
    is_made = RECORD.is_model_made or (RECORD.is_model_read and not stated.model)
    if is_made and not _is_hydras(error) and not _is_of_no_model(error):
        return "the model's own config.json: a public model of its name, or known sizes, stand for it"
    if variable := next((name for name in _VARIABLE.findall(text) if name not in stated.variables), ""):
        return f"the environment variable {variable}, which the launch doesn't set"
    named = [word for word in stated.words if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]
    if named:
        return f"the launch's own words in place of {named[0]}"
    return ""


def _is_hydras(error: BaseException) -> bool:
    """Whether Hydra refuses an override: the launch's own, in upstream's own configuration, by nothing of ours."""
    kind = type(error)
    return kind.__module__ == "hydra.errors" and kind.__name__ == "ConfigCompositionException"


def _is_of_no_model(error: BaseException) -> bool:
    """Whether upstream refuses the parallel sizes or learning rates themselves."""
    places = [RECORD.shown(file) for file, _ in _codes(error) if RECORD.is_upstream(file)]
    return bool(places) and places[-1] in _OF_NO_MODEL


def _of_another_parser(text: str) -> str:
    """An option that the parser doesn't know here, and some module of upstream adds; "" if there is none."""
    options = re.findall(r"--[\w-]+", text) if "unrecognized arguments" in text else []
    if not options:
        return ""
    added = re.compile(rf"add_argument\(\s*['\"]({'|'.join(map(re.escape, options))})['\"]")
    for root in RECORD.roots:
        for file in Path(root, "megatron").rglob("*.py"):
            if found := added.search(file.read_text(encoding="utf-8", errors="replace")):
                return found[1]
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised for, or during."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__


def _codes(error: BaseException) -> list[tuple[str, str]]:
    """(file, function) of each frame, the outermost first."""
    return [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in traceback.walk_tb(error.__traceback__)]


def _of_a_stand_in(error: BaseException) -> str:
    """The stand-in that raised this exception, or that it is about; "" if there is none, or a package is missing."""
    if _is_hydras(error) or isinstance(error, ImportError):
        return ""
    ours = stand_in_below_upstream(_codes(error)) or ("a stand-in" if _is_about_a_stand_in(error) else "")
    return f"{ours}: {' '.join(f'{type(error).__name__}: {error}'.split())[:200]}" if ours else ""


def _not_upstreams(error: BaseException) -> str:
    """Why else this exception doesn't count as upstream's; "" if it does."""
    codes = _codes(error)
    if isinstance(error, ImportError):
        if lacks := re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error)):
            return f"a release of {lacks[2]} that has {lacks[1]}"
        return f"the package {error.name}" if error.name else f"a package: {' '.join(str(error).split())[:200]}"
    if isinstance(error, MemoryError):
        return "memory of this machine, within the run's limit"
    text = f"{type(error).__name__}: {error}"
    if re.search(r"(?i)\bapex\b", text):
        return "the rest of APEX"
    if "No dot product attention backend" in text and os.environ.get("NVTE_FUSED_ATTN") == "0":
        return "FlashAttention 3, which the launch's image may have: no other backend is allowed"
    for pattern, why in _LIMITS:
        if pattern.search(text):
            return why
    places = [place for place in map(UpstreamPlace._make, codes) if RECORD.is_upstream(place.file)]
    read = next((place for place in places if place in RECORD.made_up), None)
    if read is not None:
        return f"a value of the device, read in {RECORD.shown(read.file)} {read.function}"
    routed = next((place for place in RECORD.made_up if RECORD.shown(place.file).startswith(_ROUTES)), None)
    if routed is not None and places and RECORD.shown(places[-1].file).startswith(_ROUTES):
        return f"the router's choice, read in {RECORD.shown(routed.file)} {routed.function}"
    if places and places[-1] in RECORD.of_others:
        return f"what other ranks send, in {RECORD.shown(places[-1].file)} {places[-1].function}"
    if found := _OF_ROLLOUTS.search(text):
        return f"what the rollout returns: {found[0]}"
    if any(RECORD.shown(file).startswith(_READS_DATA) for file, _ in codes):
        return "the launch's own data and tokenizer"
    if any(RECORD.shown(file).startswith("megatron/core/dist_checkpointing/") for file, _ in codes):
        return "the launch's own checkpoint"
    if any(RECORD.shown(file) in _CAPTURES for file, _ in codes):
        return "CUDA graphs, which are not captured here"
    return ""


def _is_about_a_stand_in(error: BaseException) -> bool:
    """Whether upstream asked a stand-in, or a torch without CUDA, for what it lacks, or called one in another way."""
    if "_Anything" in str(error) or str(error).startswith("object.__init__() takes exactly one argument"):
        return True  # the latter: a class whose base is an empty package's has none
    if isinstance(error, AttributeError):
        held = error.obj
        if getattr(held, "without_constructor", False):
            return True
        is_made = isinstance(held, ModuleType) and getattr(held, "__file__", None) is None
        module = getattr(held, "__module__", None) or type(held).__module__
        lacks_compiled = isinstance(held, ModuleType) and held.__name__.startswith(("torch", "transformer_engine."))
        return is_made or lacks_compiled or isinstance(held, SimpleNamespace) or str(module).startswith(_PACKAGES)
    called = re.match(r"([\w.<>]+)\(\) (got|missing|takes)", str(error)) if isinstance(error, TypeError) else None
    if called is None:
        return False
    name = called[1].partition(".")[0]
    modules = [module for path, module in sys.modules.items() if path.startswith(_PACKAGES)]
    return any(str(getattr(vars(module).get(name), "__module__", "")).startswith(_PACKAGES) for module in modules)


def _outside_upstream(codes: list[tuple[str, str]], error: BaseException) -> str:
    """Why an exception doesn't come from a launch's way through upstream's code; "" if it does."""
    files = [file for file, _ in codes]
    if _is_hydras(error):
        return ""
    if not any(map(RECORD.is_upstream, files)) and not isinstance(error, SystemExit):
        return f"upstream's code: {type(error).__name__} {str(error)[:200]}"
    functions = {function for file, function in codes if RECORD.is_upstream(file)}
    entered = {
        "pretrain",
        "init",
        "train",
        "parse_and_validate_args",
        "process_config_with_overrides",
        "parse_args",
        "init_model",
        "get_model_processor",
        "prepare_trainer",
        "_update_actor",
        "_build_engine",
        "train_batch",
        "validate_and_set_config",
        "setup_model_and_optimizer",
    }
    if _PROGRAMS & set(files) and not functions & entered and not any("/recipes/" in file for file in files):
        return "upstream's own program"  # ours asked for something that this release has not
    return ""


def stand_in_below_upstream(codes: list[tuple[str, str]]) -> str:
    """The stand-in that an exception comes from: the last frame of ours after upstream's last one; "" if none.

    Args:
        codes: (file, function) of each frame, the outermost first.
    """
    for file, function in reversed(codes):
        if (file, function) in _PASSES_THROUGH or RECORD.is_upstream(file):
            return ""
        if file.startswith(_OURS) and file not in _OF_THE_RUN:
            return f"a stand-in, {file[len(_OURS) :].removesuffix('.py')}"
    return ""
