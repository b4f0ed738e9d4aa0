"""Peak memory of a training step on each pipeline stage, term by term."""

from hcp.plan.memory.peak import PlanMemory, memory, usable_gib

__all__ = ["PlanMemory", "memory", "usable_gib"]
