"""megatron-core's own verdict on configurations, for tests/rules/test_agrees_with_megatron_core.py.

The config constructors and the group creation of the megatron-core that the path finds are run:
`initialize_model_parallel` builds its rank generators and creates every group. What the machine lacks is replaced:

* torch.distributed below it: a recorder, so no process group is made.
* triton (see `_MISSING`): anything that is asked of it exists and does nothing.

A question is a list of configurations, the answer what megatron-core says against each, null where it accepts it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from stand_ins import stand_in_for

_MISSING = ("triton",)
Case = dict[str, Any]


class MegatronCore:
    """Upstream's constructors and group creation; each set of groups is created once."""

    def __init__(self) -> None:
        import torch
        import torch._inductor.compile_fx  # before the stand-in: torch itself asks for triton there

        self.missing = stand_in_for(*_MISSING)
        self._world = {"size": 1, "rank": 0}
        torch.distributed.is_initialized = lambda: True
        torch.distributed.get_world_size = lambda group=None: self._world["size"]
        torch.distributed.get_rank = lambda group=None: self._world["rank"]
        torch.distributed.new_group = lambda **_: object()
        import megatron.core
        from megatron.core import parallel_state
        from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

        self.version: str = megatron.core.__version__
        self._configs = {True: MLATransformerConfig, False: TransformerConfig}
        self._dtype = torch.bfloat16
        self._state = parallel_state
        self._known: dict[tuple[Any, ...], str | None] = {}

    def verdict(self, case: Case) -> str | None:
        """What megatron-core says against the configuration; None if it accepts it."""
        names = ("world", "tp", "pp", "vpp", "cp", "ep", "etp", "instances", "order")
        key = (*(case[name] for name in names), tuple(case["sizes"] or ()))
        said = _rejection(self._construct, case)
        if said is None and key not in self._known:
            self._known[key] = _rejection(self._create_groups, case)
        return said if said is not None else self._known[key]

    def _construct(self, case: Case) -> None:
        self._configs[case["mla"]](
            num_layers=case["layers"],
            hidden_size=case["heads"] * 8,
            num_attention_heads=case["heads"],
            num_query_groups=case["groups"],
            tensor_model_parallel_size=case["tp"],
            sequence_parallel=case["sp"],
            pipeline_model_parallel_size=case["pp"],
            pipeline_dtype=self._dtype,
            bf16=True,
            virtual_pipeline_model_parallel_size=case["vpp"],
            context_parallel_size=case["cp"],
            expert_model_parallel_size=case["ep"],
            expert_tensor_parallel_size=case["etp"],
            num_moe_experts=case["experts"],
            cp_comm_type=case["comm"],
            experimental_attention_variant=case["variant"],
            hierarchical_context_parallel_sizes=case["sizes"],
            apply_rope_fusion=case["rope_fusion"],
            add_bias_linear=False,
            linear_attention_freq=2,
            linear_num_key_heads=case["linear_heads"][0],
            linear_num_value_heads=case["linear_heads"][1],
            **({"rope_type": case["rope_type"]} if case["mla"] else {}),
        )

    def _create_groups(self, case: Case) -> None:
        self._world.update(size=case["world"], rank=case["world"] // 2)
        try:
            self._state.initialize_model_parallel(
                tensor_model_parallel_size=case["tp"],
                pipeline_model_parallel_size=case["pp"],
                virtual_pipeline_model_parallel_size=case["vpp"],
                context_parallel_size=case["cp"],
                hierarchical_context_parallel_sizes=case["sizes"],
                expert_model_parallel_size=case["ep"],
                expert_tensor_parallel_size=case["etp"],
                num_distributed_optimizer_instances=case["instances"],
                order=case["order"],
                create_gloo_process_groups=False,
            )
        finally:
            self._state.destroy_model_parallel()


def _rejection(step: Callable[[Case], None], case: Case) -> str | None:
    try:
        step(case)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return None


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    upstream = MegatronCore()
    print(json.dumps({"version": upstream.version, "stand_ins": upstream.missing}), file=answers, flush=True)
    for line in sys.stdin:
        verdicts = [upstream.verdict(case) for case in json.loads(line)["cases"]]
        print(json.dumps({"verdicts": verdicts}), file=answers, flush=True)


if __name__ == "__main__":
    main()
