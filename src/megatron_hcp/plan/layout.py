"""A parallel layout, the job that it is for, and which layers each pipeline stage holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import groupby

from megatron_hcp.cost.gpus import Gpu
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.plan.model import PlanModel

CP_TYPES = ("p2p", "a2a", "all_gather", "a2a+p2p")
RECOMPUTE = ("none", "selective", "full")
CORE_ATTENTION = frozenset({"core_attn"})
"""What Megatron recomputes selectively by default."""
PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")
_SIZES = ("tp", "cp", "pp", "vp", "ep", "etp", "mbs")
_MOST = 1 << 20
_CORRECT = "correct the word"


@dataclass(frozen=True)
class Layout:
    """Sizes of the axes, sequences of a micro-batch, and how context parallelism and recomputation work.

    `hcp_sizes`: (inner, outer) of a2a+p2p. `recompute`: selective recomputes the core attention of each layer, full
    every layer whole, or those that the job's launch says (`block_layers`, `unit_layers` of PlanJob).
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    vp: int = 1
    ep: int = 1
    etp: int = 1
    mbs: int = 1
    cp_comm_type: str = "p2p"
    hcp_sizes: tuple[int, int] | None = None
    recompute: str = "none"

    def __str__(self) -> str:
        """The text that `parse_layout` reads; only sizes and words that decide something."""
        words = [f"{name}={getattr(self, name)}" for name in _SIZES]
        if self.cp > 1:
            words.append(f"cp_comm_type={self.cp_comm_type}")
            if self.hcp_sizes:
                words.append("hcp_sizes={},{}".format(*self.hcp_sizes))
        return " ".join([*words, f"recompute={self.recompute}"])


FSDP = "FSDP has no formula: weights and gradients are counted whole on each rank"
"""The mark of a job whose ranks share weights and gradients."""


@dataclass(frozen=True)
class PlanJob:
    """What is given: GPUs, the step, the software. `seq_length` in tokens, `global_batch` in sequences.

    `versions`: releases by the facts' names (mcore, te, bridge, verl); what is absent is unknown.
    `fp32_gradients`: gradients are added up and reduced in fp32 (grad_reduce_in_fp32), else in bf16.
    `sharded_optimizer`: the distributed optimizer is on. `marks`: what of the launch no formula covers, in words.
    `overlaps_ep`: EP's exchange runs beside other work (overlap_moe_expert_parallel_comm); None: nobody says it.
    `sends_once`: EP's exchange sends a token once to each rank and node that has experts of it, as DeepEP and HybridEP
    do (moe_token_dispatcher_type flex), and not once for each expert; None: nobody says it, and it is taken for so.
    `overlaps_tp`: TP's collectives run beside matrix products (tp_comm_overlap); None: nobody says it.
    `loss_in_place`: Transformer Engine's fused cross entropy writes gradients over logits in bf16; else they are fp32.
    `whole_graph`: a whole iteration is one CUDA graph (cuda_graph_impl full_iteration); None: nobody says it.
    `delays_wgrad`: weight gradients are started apart where EP's exchange is overlapped (delay_wgrad_compute).
    `recomputes`: modules that a launch recomputes selectively (recompute_modules); None: the core attention where the
    layout's `recompute` is selective. `optimizer_bytes`: of a parameter's state on the GPU, weight and moments.
    `block_layers`: full recomputation repeats so many of each chunk's first layers (recompute_method block); None: all.
    `unit_layers`: layers that it repeats at once, of which one input is kept (recompute_method uniform).
    `shards_weights`: FSDP shares weights and gradients too, which no formula counts (`FSDP`).
    `fp8_weights`: fp8 and mxfp8 training keeps no bf16 weights (fp8_param_gather), as Bridge's precisions set it.
    """

    world_size: int
    gpus_per_node: int
    gpu: Gpu
    nvlink_domain: int
    seq_length: int
    global_batch: int
    precision: str = "bf16"
    packed: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    fp32_gradients: bool = True
    fp8_weights: bool = True
    sharded_optimizer: bool = True
    overlaps_ep: bool | None = None
    sends_once: bool | None = None
    overlaps_tp: bool | None = None
    loss_in_place: bool = True
    whole_graph: bool | None = None
    delays_wgrad: bool | None = None
    recomputes: frozenset[str] | None = None
    block_layers: int | None = None
    unit_layers: int = 1
    optimizer_bytes: int = 12
    shards_weights: bool = False
    marks: tuple[str, ...] = ()

    @property
    def domain(self) -> int:
        """GPUs of the job in each NVLink domain.

        All where one domain has them; else whole nodes, as many in each: of 256 GPUs in domains of 72, 64.
        """
        return _equal_domain(self.world_size, self.nvlink_domain, self.gpus_per_node)

    def dp(self, layout: Layout) -> int:
        """Data-parallel size of the dense layers; what is left of the ranks, rounded down."""
        return self.world_size // (layout.tp * layout.cp * layout.pp)

    def edp(self, layout: Layout) -> int:
        """Data-parallel size of the experts' own grid, rounded down."""
        return self.world_size // (layout.etp * layout.ep * layout.pp)

    @property
    def has_userbuffers(self) -> bool:
        """Whether TP's collectives are overlapped: as said, else as in Bridge's recipes of Llama, where it is stated.

        They leave it off in NVFP4, and Megatron-LM does by default. Source: llama31_llm_pretrain.py of
        scripts/performance, Megatron-Bridge 0.2.0 to 0.5.1; perf_recipes/llama of 0.6.0.
        """
        if self.overlaps_tp is None:
            return "bridge" in self.versions and "verl" not in self.versions and self.precision != "nvfp4"
        return self.overlaps_tp

    def modules_again(self, layout: Layout) -> frozenset[str]:
        """Modules that a layout recomputes selectively."""
        if layout.recompute != "selective":
            return frozenset()
        return CORE_ATTENTION if self.recomputes is None else self.recomputes

    def micro_batches(self, layout: Layout) -> int:
        """Micro-batches of a step on each data-parallel rank, rounded down, at least 1."""
        return max(1, self.global_batch // max(1, layout.mbs * self.dp(layout)))


@lru_cache(maxsize=256)
def _equal_domain(world: int, most: int, node: int) -> int:
    if world <= most:
        return world
    whole_nodes = range(most // node * node, 0, -node)
    return next((size for size in whole_nodes if world % size == 0), most)


def parse_layout(text: str) -> Layout:
    """The layout in "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=8,2"; what is left out has its default.

    `vpp` is read as `vp`, and words may be split by spaces or semicolons.

    Raises:
        HcpError: an unknown name, a name twice, or a value of the wrong kind.

    >>> parse_layout("tp=2 cp=8 vpp=3").vp
    3
    """
    given: dict[str, object] = {}
    known = [item.name for item in fields(Layout)]
    for word in text.replace(";", " ").split():
        name, equals, value = word.partition("=")
        name = "vp" if name == "vpp" else name
        if not equals or name not in known:
            raise HcpError(
                f"layout: found {word!r:.40}", wanted=f"NAME=VALUE with a name of {', '.join(known)}", do=_CORRECT
            )
        if name in given:
            raise HcpError(f"layout: found {name} twice", wanted="it once", do="leave one out")
        given[name] = _value(name, value)
    layout = Layout(**given)  # type: ignore[arg-type]
    if "cp_comm_type" not in given and layout.hcp_sizes:
        raise HcpError("layout: found hcp_sizes without cp_comm_type=a2a+p2p", wanted="both", do="write both")
    if layout.hcp_sizes and layout.cp_comm_type != "a2a+p2p":
        found = f"found hcp_sizes with cp_comm_type={layout.cp_comm_type}, which has no levels"
        raise HcpError(f"layout: {found}", wanted="a2a+p2p", do="leave one out")
    return layout


def _value(name: str, value: str) -> object:
    """The value of that word."""
    if name in _SIZES:
        return _size(name, value)
    if name == "hcp_sizes":
        sizes = tuple(_size(name, part) for part in value.strip("[]()").split(","))
        if len(sizes) != 2:
            raise HcpError(
                f"layout: found hcp_sizes={value:.40}", wanted="two sizes, inner first", do="write hcp_sizes=8,2"
            )
        return sizes
    allowed = CP_TYPES if name == "cp_comm_type" else RECOMPUTE
    if value not in allowed:
        raise HcpError(f"layout: found {name}={value:.40}", wanted=f"one of {', '.join(allowed)}", do=_CORRECT)
    return value


def _size(name: str, text: str) -> int:
    size = whole_number(text)
    if size is None or not 1 <= size <= _MOST:
        raise HcpError(f"layout: found {name}={text:.40}", wanted=f"a whole number from 1 to {_MOST}", do=_CORRECT)
    return size


MOST_OVERLAPPED_MTP = 1
"""Prediction layers with which EP's exchange can be overlapped."""


def overlaps_exchange(model: PlanModel, layout: Layout) -> bool:
    """Whether EP's exchange can run beside other work: megatron-core refuses some layouts.

    Source: overlap_moe_expert_parallel_comm in TransformerConfig.__post_init__ of megatron-core.
    """
    is_staged = layout.pp > 1 and layout.vp == 1
    return not is_staged and layout.recompute != "full" and model.mtp <= MOST_OVERLAPPED_MTP


def stage_layers(model: PlanModel, layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Decoder layers of each chunk of each pipeline stage: `result[stage][chunk]`.

    Even where the layers divide by pp x vp. Else a custom layout, in which the embedding, the loss and each
    multi-token-prediction layer count as a layer, the last chunk holds the latter two, and the chunks before the
    last ones are the larger.

    >>> from megatron_hcp.cost.model_sizes import ModelSizes
    >>> sizes = ModelSizes(61, 64, 4, 4, 16, 16, 256, 61, True)
    >>> stage_layers(PlanModel(sizes, (False,) * 61, mtp=1), Layout(pp=4, vp=4))
    ((3, 4, 4, 4), (4, 4, 4, 4), (4, 4, 4, 4), (4, 4, 4, 2))
    """
    return _stage_layers(model.sizes.num_layers, model.mtp, layout.pp, layout.vp)


@lru_cache(maxsize=4096)
def _stage_layers(layers: int, mtp: int, pp: int, vp: int) -> tuple[tuple[int, ...], ...]:
    parts = pp * vp
    each, rest = divmod(layers, parts)
    counts = [each] * parts
    if rest:
        counts = _balanced(layers, 1, 1 + mtp, parts)
    return tuple(tuple(counts[chunk * pp + stage] for chunk in range(vp)) for stage in range(pp))


def _balanced(layers: int, before: int, after: int, parts: int) -> list[int]:
    """Layers of each part: all parts alike, where the first holds `before` and the last `after` layers' work more."""
    counts = [-before] + [0] * (parts - 2) + [-after] if parts > 1 else [0]
    each, rest = divmod(layers + before + after, parts)
    for part in range(parts):
        # The larger parts come last: the earlier stages hold more micro-batches in flight.
        counts[part] += each + (part >= parts - rest)
    for part, count in enumerate(counts):
        if count < 0:
            counts[part] = 0
            for _ in range(-count):  # what the part cannot give, the largest parts do
                counts[counts.index(max(counts))] -= 1
    return counts


def pipeline_string(model: PlanModel, layout: Layout) -> str | None:
    """The stages as --pipeline-model-parallel-layout takes them; None where Megatron's even split gives the same.

    Source: PipelineParallelLayerLayout.parse_str_to_list in megatron-core.

    >>> from megatron_hcp.cost.model_sizes import ModelSizes
    >>> sizes = ModelSizes(6, 64, 4, 4, 16, 16, 256, 6, True)
    >>> pipeline_string(PlanModel(sizes, (False,) * 6), Layout(pp=4))
    'Et|(tt|)*2tL'
    """
    stages = stage_layers(model, layout)
    if layout.pp == 1 or model.sizes.num_layers % (layout.pp * layout.vp) == 0:
        return None
    texts = [_times("t", stages[stage][chunk]) for chunk in range(layout.vp) for stage in range(layout.pp)]
    texts[0] = "E" + texts[0]
    texts[-1] += "m" * model.mtp + "L"
    *middle, last = texts
    written = ""
    for text, run in groupby(middle):
        count = len(list(run))
        written += f"{text}|" if count == 1 else f"({text}|)*{count}"
    return written + last


def _times(letter: str, count: int) -> str:
    return letter * count if count < 4 else f"{letter}*{count}"
