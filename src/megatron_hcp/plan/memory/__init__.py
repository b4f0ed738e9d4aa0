"""Peak memory of a training step on each pipeline stage, term by term."""

from megatron_hcp.plan.memory.peak import PlanMemory, is_tight, may_fit, memory, usable_gib

__all__ = ["PlanMemory", "is_tight", "may_fit", "memory", "usable_gib"]
