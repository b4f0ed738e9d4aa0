"""DCP rules on verl."""

from __future__ import annotations

from support.launches import ACTOR, BY_COUNT, OVERRIDE, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, finding, found_by_all, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERL_0_9 = VERL_ON_DEV.replace("0.9.1", "0.9.0")
VERL_0_8 = VERL_ON_DEV.replace("0.9.1", "0.8.0")
VERL_0_7 = VERL_ON_DEV.replace("0.9.1", "0.7.0")

OF_ACTOR = f"{VERL}actor_rollout_ref.actor."
FUSED = f"{VERL}+{OVERRIDE}moe_router_fusion=True {ACTOR}router_replay.mode="
TOP_K = f"{VERL}distillation.distillation_loss.loss_mode=forward_kl_topk distillation.enabled="
PADDED = f"{VERL}{ACTOR}pad_to_length=8192"
WITH_VISION = VERL_0_9 + "vision=true"
OF_4 = f"{VERL}{ACTOR}context_parallel_size=4"
MICRO_BATCH = f"{VERL}{BY_COUNT}"
REF = "actor_rollout_ref.actor.use_kl_loss=True "
CRITIC = f"{VERL}algorithm.adv_estimator=gae critic.strategy="
SFT = "engine=megatron engine.dynamic_context_parallel=True engine.max_seqlen_per_dp_cp_rank=4096"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP018", "verl", f"{VERL}{ACTOR}virtual_pipeline_model_parallel_size=2", VERL_ON_DEV, "all: DCP018 PIPE004"),
    ("DCP018", "verl", f"{VERL}+{OVERRIDE}fp8=e4m3", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{VERL}+{OVERRIDE}fp8=False", VERL_ON_DEV, "fine"),
    ("DCP018", "verl", VERL, VERL_ON_DEV + "fp8=false", "fine"),
    ("DCP018", "verl", f"{FUSED}R2", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{FUSED}disabled", VERL_ON_DEV, "fine"),
    ("DCP018", "verl", f"{FUSED}null", VERL_ON_DEV, "fine"),  # the section of router_replay refuses it on its own
    ("DCP018", "verl", f"{VERL}actor_rollout_ref.model.use_remove_padding=False", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{TOP_K}True", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{VERL}{ACTOR}override_ddp_config.average_in_collective=True", VERL_ON_DEV, "all: DCP018"),
    ("DCP018", "verl", f"{VERL}{ACTOR}virtual_pipeline_model_parallel_size=1", VERL_ON_DEV, "all: PIPE004"),
    ("DCP018", "verl", f"{VERL}{ACTOR}router_replay.mode=R2", VERL_ON_DEV, "all:"),
    ("DCP018", "verl", f"{VERL}distillation.enabled=True", VERL_ON_DEV, "all:"),
    ("DCP018", "verl", f"{TOP_K}False", VERL_ON_DEV, "all:"),
    ("DCP018", "verl", PADDED, VERL_0_9, "error crash init"),
    ("DCP018", "verl", PADDED, VERL_0_8, "fine"),  # it compares none of this
    ("DCP018", "verl", VERL, WITH_VISION, "error crash init"),
    ("DCP018", "verl", f"{ACTOR}pad_to_length=8192", VERL_0_9, "not concerned"),
    ("DCP023", "verl", f"{OF_ACTOR}use_dynamic_bsz=True", VERL_ON_DEV, "all:"),  # one of the ways to start
    ("DCP023", "verl", f"{MICRO_BATCH}1", VERL_ON_DEV, "all:"),  # the other one
    ("DCP023", "verl", f"{OF_ACTOR}use_dynamic_bsz=False", VERL_ON_DEV, "all: VERL001 VERL002"),
    ("DCP023", "verl", f"{MICRO_BATCH}4", VERL_0_9, "info note never"),
    ("DCP023", "verl", f"{MICRO_BATCH}4", VERL_0_8, "fine"),
    ("DCP023", "verl", f"{MICRO_BATCH}null", VERL_0_9, "fine"),
    ("DCP023", "verl", "actor_rollout_ref.actor.use_dynamic_bsz=True", VERL_0_9, "not concerned"),
    ("DCP025", "verl", f"{MICRO_BATCH}7", VERL_0_8, "all: DCP025 LOSS006 VERL003"),
    ("DCP025", "verl", f"{MICRO_BATCH}7", VERL_0_8, "error silent never"),
    ("DCP025", "verl", f"{MICRO_BATCH}7", VERL_0_7, "fine"),  # there is no dynamic CP: DCP020 says it
    ("DCP025", "verl", f"{MICRO_BATCH}7", VERL_0_9, "fine"),
    ("DCP025", "verl", f"{MICRO_BATCH}8", VERL_0_8, "all: LOSS006"),
    ("DCP025", "verl", f"{MICRO_BATCH}9", VERL_0_8, "all: DCP025 LOSS006 VERL003"),
    ("DCP025", "verl", f"{MICRO_BATCH}9", VERL_0_8, "error hang training"),  # 2 for each of five groups of eight
    ("DCP025", "verl", f"{MICRO_BATCH}16", VERL_0_8, "all: LOSS006"),
    ("DCP025", "verl", f"{MICRO_BATCH}17", VERL_0_8, "all: DCP025 LOSS006 VERL003"),
    (
        "DCP025",
        "verl",
        f"{MICRO_BATCH}8 actor_rollout_ref.actor.use_dynamic_bsz=True",
        VERL_0_8,
        "warning hang training",
    ),
    ("DCP025", "verl", f"{MICRO_BATCH}6 trainer.n_gpus_per_node=6", VERL_0_8, "error hang training"),  # groups of 4
    ("DCP025", "verl", VERL, VERL_0_8, "warning hang training"),
    ("DCP025", "verl", SFT, VERL_0_8 + "use_dynamic_bsz=false micro_batch_size=8", "warning hang training"),
    ("DCP025", "verl", f"{MICRO_BATCH}7".replace(VERL, ""), VERL_0_8, "not concerned"),
    ("DCP026", "verl", OF_4, VERL_ON_DEV, "all: DCP026"),
    ("DCP026", "verl", OF_4, VERL_0_9, "info note never"),
    ("DCP026", "verl", OF_4, VERL_0_8, "error silent never"),
    ("DCP026", "verl", VERL, VERL_0_8, "fine"),
    ("DCP026", "verl", f"{ACTOR}context_parallel_size=4", VERL_0_8, "not concerned"),
    ("DCP026", "verl", f"{VERL} {ACTOR}context_parallel_size=4", VERL_0_7, "fine"),  # the key itself is refused
    ("DCP027", "verl", f"{CRITIC}megatron", VERL_0_7, "all: DCP020"),
    ("DCP027", "verl", f"{CRITIC}megatron", VERL_ON_DEV, "all: DCP027"),
    ("DCP027", "verl", f"{CRITIC}megatron", VERL_ON_DEV, "error crash init"),
    ("DCP027", "verl", f"{CRITIC}fsdp", VERL_ON_DEV, "not concerned"),
    ("DCP027", "verl", f"{VERL}{REF}", VERL_ON_DEV, "all:"),
    ("DCP027", "verl", f"{VERL}{REF}", VERL_0_9, "fine"),
    ("DCP027", "verl", f"{VERL}{REF}", VERL_0_8, "error crash init"),
    ("DCP027", "verl", f"{VERL}{REF}", "", "fine"),  # by today's version ref follows
    ("DCP027", "verl", f"{VERL}{REF}actor_rollout_ref.ref.megatron.dynamic_context_parallel=False", "", "error"),
    (
        "DCP027",
        "verl",
        f"{CRITIC}megatron critic.megatron.dynamic_context_parallel=${{oc.env:ON}}",
        "",
        "fine",
    ),  # unknown
    ("DCP027", "verl", f"{ACTOR}context_parallel_size=4 {REF}", VERL_ON_DEV, "not concerned"),  # neither says it
    ("DCP027", "verl", VERL, VERL_ON_DEV, "not concerned"),
    ("DCP027", "mlm", "--dynamic-context-parallel", "", "not concerned"),
    ("DCP027", "verl", f"{VERL}algorithm.adv_estimator=grpo critic.strategy=megatron", VERL_ON_DEV, "all:"),
    (
        "DCP027",
        "verl",
        f"{ACTOR}context_parallel_size=2 algorithm.adv_estimator=gae critic.strategy=megatron",
        "",
        "not concerned",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP018", "verl", PADDED, VERL_0_9, "actor_rollout_ref.actor.megatron.pad_to_length"),
    ("DCP018", "verl", VERL, WITH_VISION, "a model with a vision tower"),
    ("DCP018", "verl", VERL, WITH_VISION, "actor_rollout_ref.actor.megatron.dynamic_context_parallel"),
    ("DCP025", "verl", f"{MICRO_BATCH}7", VERL_0_8, "context parallelism is off"),
    ("DCP025", "verl", f"{MICRO_BATCH}9", VERL_0_8, "some ranks get no sequence"),
    ("DCP025", "verl", f"{MICRO_BATCH}9", VERL_0_8, "9 sequences over 8 ranks"),
    ("DCP025", "verl", VERL, VERL_0_8, "many counts leave ranks without a sequence"),
    ("DCP025", "verl", VERL, VERL_0_8, "any size by count"),
    ("DCP026", "verl", OF_4, VERL_0_9, "only counts towards DP x CP"),
    ("DCP026", "verl", OF_4, VERL_0_9, "the packed budget of a static group / 4"),
    ("DCP026", "verl", OF_4, VERL_0_8, "sequences reach the wrong ranks"),
    ("DCP026", "verl", OF_4, VERL_0_8, "| context_parallel_size 1 |"),
    ("DCP027", "verl", f"{CRITIC}megatron", VERL_ON_DEV, "on in actor_rollout_ref.actor, off in critic"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    ("DCP018", "verl", PADDED, VERL_0_9, (f"{ACTOR}pad_to_length=false",)),
    ("DCP018", "verl", VERL, WITH_VISION, (f"{ACTOR}dynamic_context_parallel=false",)),
    (
        "DCP018",
        "verl",
        f"{VERL}critic.strategy=megatron {VERL.replace('actor_rollout_ref.actor', 'critic')}",
        VERL_ON_DEV,
        ("critic.megatron.dynamic_context_parallel=false",),
    ),
    (
        "DCP025",
        "verl",
        f"{MICRO_BATCH}9",
        VERL_0_8,
        ("actor_rollout_ref.actor.use_dynamic_bsz=false actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",),
    ),
    ("DCP025", "verl", SFT, VERL_0_8, ()),  # the number of ranks is unknown
]


def test_dcp027_before_0_9_the_reference_model_does_not_follow_the_actor() -> None:
    text = f"{VERL} actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"
    both = f"{text} actor_rollout_ref.ref.megatron.dynamic_context_parallel=True"
    assert "DCP027" in found_by_all(launch("verl", text, VERL_0_8)).split()
    assert "DCP027" not in found_by_all(launch("verl", both, VERL_0_8)).split()
    assert "DCP027" not in found_by_all(launch("verl", text, VERL_ON_DEV)).split()


def test_dcp018_a_critic_that_shares_the_switch_is_refused_as_a_value_model() -> None:
    text = f"{VERL} critic.strategy=megatron " + VERL.replace("actor_rollout_ref.actor", "critic")
    found = finding("DCP018", launch("verl", text, VERL_ON_DEV), fixes=True)
    assert "value model" in found.problem.found and found.role == "critic"
    assert [fix.edits for fix in found.fixes] == [(("dynamic_context_parallel", False),)]
