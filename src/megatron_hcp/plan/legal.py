"""Which rules forbid a layout: what `hcp check` reports as an error for the launch that the layout amounts to.

The rules judge launches, facts may be unknown and say where they stand; a search judges hundreds of thousands of
layouts. Both do the arithmetic of `core.fits` by the releases of `core.releases`, and a test holds their answers
together on random layouts. A release that is not given is taken for a current one.
"""

from __future__ import annotations

from collections.abc import Iterator

from megatron_hcp.core import fits
from megatron_hcp.core.releases import (
    CUDNN_PACKED_SINKS,
    MCORE_DELTA_NET_CP,
    MCORE_DSA_CP,
    MCORE_PADS_PACKED_VALUES,
    MCORE_PATTERN_STAGES,
    MCORE_SHARED_KV_HEADS,
    TE_COMM_TYPE,
    TE_LEVELS,
    TE_MLA,
    TE_MLA_ALL_TYPES,
    TE_PACKED_LEVELS,
    TE_PACKED_SINKS,
    TE_SINKS,
    at_least,
)
from megatron_hcp.plan.layout import Layout, PlanJob, pipeline_string
from megatron_hcp.plan.mixers import PLAIN
from megatron_hcp.plan.model import PlanModel

RECIPES = {"fp8": "tensorwise", "mxfp8": "mxfp8"}
"""The FP8 recipe of each precision that has one."""


def forbidden(model: PlanModel, layout: Layout, job: PlanJob) -> list[str]:
    """The ids of the rules that forbid the layout, sorted; none where it is legal."""
    found = [*_tensor(model, layout, job), *_experts(model, layout), *_ranks(layout, job)]
    found += wrong_lengths(layout, job)
    if not fp8_blocks_fit(layout.cp, layout.mbs, job):
        found.append("CP003")
    if layout.cp > 1:
        found += _exchange(model, layout, job)
        found += _attention(model, layout, job)
    found += _mixers(model, layout, job)
    return sorted(set(found))


def _since(job: PlanJob, package: str, release: str) -> bool:
    """Whether the job's release of a package is that or newer, or not given."""
    version = job.versions.get(package)
    return version is None or at_least(version, release)


def _tensor(model: PlanModel, layout: Layout, job: PlanJob) -> Iterator[str]:
    s, tp = model.sizes, layout.tp
    if s.heads % tp:
        yield "TP001"
    if not fits.kv_heads_fit(s.kv_heads, tp, shares=_since(job, "mcore", MCORE_SHARED_KV_HEADS)):
        yield "CP008"
    if fits.undivided_width(dense_widths(model), tp) or fits.undivided_width(expert_widths(model), layout.etp):
        yield "TP004"


def dense_widths(model: PlanModel) -> dict[str, int]:
    """The widths that the tensor-parallel ranks share: of the MLP where a layer has one, and of shared experts."""
    s = model.sizes
    return {"ffn_hidden_size": s.dense_ffn if not all(model.is_moe) else 0, "shared experts": s.shared_ffn}


def expert_widths(model: PlanModel) -> dict[str, int]:
    """The width that the expert-tensor-parallel ranks share."""
    return {"moe_ffn_hidden_size": model.sizes.moe_ffn}


def _experts(model: PlanModel, layout: Layout) -> Iterator[str]:
    if layout.ep == 1:
        return
    if not model.sizes.experts:
        yield "MOE001"
    elif model.sizes.experts % layout.ep:
        yield "MOE002"


def _ranks(layout: Layout, job: PlanJob) -> Iterator[str]:
    dense = fits.dense_ranks(layout.tp, layout.cp, layout.pp)
    if job.world_size % fits.expert_ranks(layout.etp, layout.ep, layout.pp):
        yield "TOPO004"
    if layout.vp > 1 and layout.pp == 1:
        yield "PIPE004"
    if job.world_size % dense:
        yield "TOPO003"
        return
    unit = layout.mbs * (job.world_size // dense)
    if job.global_batch % unit:
        yield "BATCH001"
    elif layout.vp > 1 and layout.pp > 1 and not fits.rounds_fit(job.global_batch // unit, layout.pp):
        yield "BATCH004"


def wrong_lengths(layout: Layout, job: PlanJob) -> Iterator[str]:
    """The rules that forbid a sequence of that length on the ranks of TP and CP, whatever the micro-batch."""
    cp, tp = layout.cp, layout.tp
    if cp > 1 and not fits.chunks_fit(job.seq_length, cp):
        yield "CP001"
    if tp > 1 and not job.packed and job.seq_length % (cp * tp):
        yield "CP002"


def fp8_blocks_fit(cp: int, mbs: int, job: PlanJob) -> bool:
    """Whether CP003 allows the micro-batch: a rank's tokens are whole blocks of the FP8 recipe, if there is one."""
    recipe = RECIPES.get(job.precision)
    if cp == 1 or recipe is None or job.packed:
        return True
    return fits.tokens_fit(job.seq_length * mbs, cp, fits.FP8_TOKENS[recipe])


def _exchange(model: PlanModel, layout: Layout, job: PlanJob) -> Iterator[str]:
    """The type of CP communication: its heads, its levels, its release of Transformer Engine."""
    kind = layout.cp_comm_type
    heads = fits.rank_heads(model.sizes.heads, model.sizes.kv_heads, layout.tp)
    if kind in ("a2a", "all_gather") and not _since(job, "te", TE_COMM_TYPE):
        yield "CP023"
    if kind == "a2a" and not fits.exchange_fits(heads, layout.cp):
        yield "CP007"
    if kind != "a2a+p2p":
        if layout.hcp_sizes and layout.hcp_sizes[0] * layout.hcp_sizes[1] != layout.cp:
            yield "HCP002"
        return
    if not _since(job, "te", TE_LEVELS):
        yield "HCP013"
    if job.packed and not _since(job, "te", TE_PACKED_LEVELS):
        yield "HCP014"
    if layout.hcp_sizes is None:
        yield "HCP001"
    elif layout.hcp_sizes[0] * layout.hcp_sizes[1] != layout.cp:
        yield "HCP002"
    elif model.sizes.heads % layout.tp == 0 and not fits.exchange_fits(heads, layout.hcp_sizes[0]):
        yield "HCP007"


def _attention(model: PlanModel, layout: Layout, job: PlanJob) -> Iterator[str]:
    """Kinds of attention, which not every type of CP communication has."""
    kind, s = layout.cp_comm_type, model.sizes
    own = model.mixers.selects  # DSA has its own attention
    if s.windows and not own:
        if kind == "p2p":
            yield "CP009"
        elif kind == "a2a+p2p" and (layout.hcp_sizes is None or layout.hcp_sizes[1] > 1 or not _covers(layout)):
            yield "HCP018"
    if model.sinks:
        packs = _since(job, "te", TE_PACKED_SINKS) and _since(job, "cudnn", CUDNN_PACKED_SINKS)
        if kind in ("p2p", "all_gather") or not _since(job, "te", TE_SINKS) or (job.packed and not packs):
            yield "CP010"
        if kind == "a2a+p2p":
            yield "HCP017"
    wide = s.kv_lora and s.qk_head_dim != s.v_head_dim and not own
    if wide and not _pads_values(job):
        late = kind in ("a2a", "all_gather") and not _since(job, "te", TE_MLA_ALL_TYPES)
        if late or not _since(job, "te", TE_MLA):
            yield "CP015"


def _mixers(model: PlanModel, layout: Layout, job: PlanJob) -> Iterator[str]:
    """Layers beside attention, which have their own context parallelism, and their own way to write stages."""
    cp, mixers = layout.cp, model.mixers
    if mixers == PLAIN:
        return
    if cp > 1 and mixers.mamba and not fits.mamba_fits(*mixers.mamba, layout.tp, cp):
        yield "MODEL001"
    if cp > 1 and mixers.selects and (layout.cp_comm_type != "all_gather" or not _since(job, "mcore", MCORE_DSA_CP)):
        yield "MODEL002"
    if mixers.delta_net:
        uneven = any(heads % (layout.tp * cp) for heads in mixers.delta_net)
        if uneven or (cp > 1 and not _since(job, "mcore", MCORE_DELTA_NET_CP)):
            yield "MODEL003"
    own_split = pipeline_string(model, layout) is not None or layout.vp > 1
    if mixers.pattern and own_split and _since(job, "mcore", MCORE_PATTERN_STAGES):
        yield "PIPE005"


def _covers(layout: Layout) -> bool:
    """Whether the levels cover the CP group."""
    return layout.hcp_sizes is not None and layout.hcp_sizes[0] * layout.hcp_sizes[1] == layout.cp


def _pads_values(job: PlanJob) -> bool:
    """Whether values are padded to the width of the queries, so that the attention sees one width."""
    return job.packed and _since(job, "mcore", MCORE_PADS_PACKED_VALUES)
