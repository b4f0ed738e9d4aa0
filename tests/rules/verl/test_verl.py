"""VERL rules: the batches that verl's start-up asks for, as tables. The verdicts are those of its `validate_config`."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

A, R = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
MEGATRON = "model_engine=megatron algorithm.adv_estimator=grpo "
SOUND = f"{MEGATRON}{A}ppo_micro_batch_size_per_gpu=2 {R}log_prob_micro_batch_size_per_gpu=2 "
WITH_REF = f"{SOUND}{A}use_kl_loss=True "
WITH_CRITIC = SOUND.replace("grpo", "gae")
BY_TOKENS = f"{MEGATRON}{A}use_dynamic_bsz=True "
CP_4 = f"{SOUND}trainer.nnodes=3 {A}megatron.context_parallel_size=4 "

CRITIC_ONLY, CRITIC_CP = BY_TOKENS.replace("grpo", "gae"), "critic.megatron.context_parallel_size="
WITH_SIZES = f"{BY_TOKENS}{A}use_kl_loss=True "
ACTOR_CP, REF_CP = f"{A}megatron.context_parallel_size=", "actor_rollout_ref.ref.megatron.context_parallel_size="

VALUES = f"{CRITIC_ONLY}data.max_response_length=50000 {A}ppo_max_token_len_per_gpu=65536 "
ASYNC = "python3 -m verl.experimental.fully_async_policy.fully_async_main"
LONG = f"{BY_TOKENS}data.max_prompt_length=1024 data.max_response_length=31744 "  # 32768 tokens
LONG_YAML = """\
algorithm: {adv_estimator: grpo}
data: {max_prompt_length: 1024, max_response_length: 31744}
actor_rollout_ref:
  actor: {strategy: megatron, use_dynamic_bsz: true}
"""

AS_YAML = """\
algorithm: {adv_estimator: grpo}
actor_rollout_ref:
  actor: {strategy: megatron, use_dynamic_bsz: false}
  rollout: {n: 1}
"""

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2", "verl=0.9.0", "all: VERL006"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2", "verl=0.9.0", "error silent never"),
    ("VERL006", "verl", f"{WITH_SIZES}{REF_CP}2", "verl=0.9.0", "error"),  # the actor's default is 1
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2", "verl=0.8.0", "warning"),  # the legacy mbridge
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2 {A}megatron.vanilla_mbridge=True", "verl=0.9.0", "warning"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2 {A}megatron.vanilla_mbridge=False", "verl=0.9.0", "error"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2 {A}megatron.vanilla_mbridge=False", "verl=0.8.0", "error"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2", "verl=0.7.1", "fine"),  # its workers build the actor's
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}2 {REF_CP}1", "verl=0.9.0", "warning"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}2 {REF_CP}4", "verl=0.9.0", "warning"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}2 {REF_CP}2", "verl=0.9.0", "fine"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}2", "verl=0.9.0", "fine"),  # it follows
    ("VERL006", "verl", WITH_SIZES, "verl=0.9.0", "not concerned"),
    ("VERL006", "verl", f"{CRITIC_ONLY}{ACTOR_CP}1 {REF_CP}2", "verl=0.9.0", "not concerned"),
    ("VERL006", "verl", f"{CRITIC_ONLY}{A}use_kl_loss=True {ACTOR_CP}2 {CRITIC_CP}4", "verl=0.9.0", "fine"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}2 {REF_CP}${{oc.env:CP}}", "verl=0.9.0", "fine"),  # known where it runs
    ("VERL006", "verl", f"{BY_TOKENS}{ACTOR_CP}1 {REF_CP}2", "verl=0.9.0", "not concerned"),  # no reference model
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2", "", "needs verl"),
    ("VERL001", "verl", SOUND, "", "all:"),
    ("VERL001", "verl", MEGATRON, "", "all: VERL001 VERL002"),
    ("VERL001", "verl", BY_TOKENS, "", "all:"),
    ("VERL001", "verl", f"{SOUND}{A}ppo_micro_batch_size=8", "", "all: VERL001"),  # both
    ("VERL001", "verl", f"{SOUND}{A}ppo_micro_batch_size=8 {A}ppo_micro_batch_size_per_gpu=null", "", "all: VERL001"),
    ("VERL001", "verl", WITH_CRITIC, "", "all: VERL001"),
    ("VERL001", "verl", f"{WITH_CRITIC}critic.ppo_micro_batch_size_per_gpu=1", "", "all:"),
    ("VERL001", "verl", f"{WITH_CRITIC}critic.ppo_micro_batch_size=8", "", "all:"),
    ("VERL001", "verl", f"{WITH_CRITIC}critic.use_dynamic_bsz=True", "", "all:"),
    ("VERL001", "verl", BY_TOKENS.replace("grpo", "gae"), "", "all:"),  # the critic follows the actor
    ("VERL001", "verl", f"{BY_TOKENS.replace('grpo', 'gae')}critic.use_dynamic_bsz=False", "", "all: VERL001"),
    ("VERL001", "verl", MEGATRON.replace("megatron", "dp"), "", "not concerned"),  # no model of megatron's
    ("VERL001", "verl", "engine=megatron engine.context_parallel_size=2", "", "not concerned"),  # fine-tuning
    ("VERL001", "mlm", "--micro-batch-size 1", "", "not concerned"),
    ("VERL001", "verl", AS_YAML, "", "warning crash config"),  # the command line may add it
    ("VERL002", "verl", AS_YAML, "", "warning crash config"),
    ("VERL002", "verl", f"{SOUND}{R}log_prob_micro_batch_size_per_gpu=null", "", "all: VERL002"),
    ("VERL002", "verl", f"{SOUND}{R}log_prob_micro_batch_size=8", "", "all: VERL002"),  # both
    (
        "VERL002",
        "verl",
        f"{SOUND}{R}log_prob_micro_batch_size=8 {R}log_prob_micro_batch_size_per_gpu=null",
        "",
        "all:",
    ),
    ("VERL002", "verl", WITH_REF, "", "all: VERL002"),
    ("VERL002", "verl", f"{WITH_REF}actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1", "", "all:"),
    ("VERL002", "verl", f"{WITH_REF}actor_rollout_ref.ref.log_prob_micro_batch_size=8", "", "all:"),
    ("VERL002", "verl", f"{BY_TOKENS}{A}use_kl_loss=True", "", "all:"),
    ("VERL003", "verl", CP_4, "", "all: VERL003"),  # 1024 sequences for DP 6 x 2
    # Any number of nodes may be stated: not all that are fewer are tried.
    ("VERL003", "verl", CP_4.replace("nnodes=3", f"nnodes={10**12}"), "", "all: VERL003"),
    ("VERL003", "verl", f"{CP_4}{R}n=3", "", "all:"),  # 3072
    ("VERL003", "verl", f"{CP_4}{A}megatron.tensor_model_parallel_size=3", "", "all:"),  # DP 2
    ("VERL003", "verl", f"{CP_4}{A}megatron.tensor_model_parallel_size=5", "", "all: TOPO003"),
    ("VERL003", "verl", f"{CP_4}{A}use_dynamic_bsz=True", "", "not concerned"),
    ("VERL003", "verl", f"{MEGATRON}trainer.nnodes=3", "", "not concerned"),  # VERL001
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=384 {A}ppo_mini_batch_size=256", "", "all: VERL008"),
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=384 {A}ppo_mini_batch_size=256", "", "error crash training"),
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=384 {A}ppo_mini_batch_size=128", "", "all:"),
    ("VERL008", "verl", f"{BY_TOKENS}data.train_batch_size=384 {A}ppo_mini_batch_size=256", "", "error"),
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=16 {A}ppo_mini_batch_size=4", "", "all: VERL008"),  # DP 8
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=16 {A}ppo_mini_batch_size=4 {R}n=2", "", "all:"),
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=12 {A}ppo_mini_batch_size=8", "", "all: VERL003"),  # DP 8
    ("VERL008", "verl", f"{SOUND}data.train_batch_size=128", "", "fine"),  # VERL004
    ("VERL008", "verl", f"{ASYNC} {SOUND}data.train_batch_size=384\n", "", "not concerned"),
    ("VERL008", "verl", MEGATRON.replace("megatron", "dp"), "", "not concerned"),
    ("VERL004", "verl", f"{SOUND}data.train_batch_size=128", "", "all: VERL004"),
    ("VERL004", "verl", f"{SOUND}data.train_batch_size=128 {A}ppo_mini_batch_size=128", "", "all:"),
    ("VERL004", "verl", f"{BY_TOKENS}data.train_batch_size=128", "", "not concerned"),
    (
        "VERL004",
        "verl",
        f"{WITH_CRITIC}critic.ppo_micro_batch_size_per_gpu=1 critic.ppo_mini_batch_size=2048",
        "",
        "all: VERL004",
    ),
    (
        "VERL004",
        "verl",
        f"{WITH_CRITIC}critic.ppo_micro_batch_size_per_gpu=1 {A}ppo_mini_batch_size=64 data.train_batch_size=64",
        "",
        "all:",  # the critic's mini-batch is the actor's
    ),
    # fully_async_main.py has checks of its own, and its launches state a step of 0 prompts; nor does gkd call verl's.
    ("VERL004", "verl", f"{ASYNC} {SOUND}data.train_batch_size=0\n", "", "all:"),
    ("VERL003", "verl", f"{ASYNC} {CP_4}\n", "", "not concerned"),
    ("VERL002", "verl", f"{ASYNC} {MEGATRON}\n", "", "all: VERL001"),
    ("VERL002", "verl", f"python3 -m main_gkd {MEGATRON}\n", "", "all: VERL001"),
    ("VERL002", "verl", f"python3 -m verl.trainer.main_ppo {MEGATRON}\n", "", "all: VERL001 VERL002"),
    # verl/workers/config/critic.py: ppo_infer_max_token_len_per_gpu is 32768 whatever the critic trains with.
    ("VERL005", "verl", f"{VALUES}critic.ppo_max_token_len_per_gpu=65536", "verl=0.8.0", "error"),
    ("VERL005", "verl", f"{VALUES}critic.ppo_max_token_len_per_gpu=65536", "verl=0.7.1", "fine"),
    ("VERL005", "verl", f"{VALUES}critic.ppo_max_token_len_per_gpu=65536", "", "needs verl"),
    ("VERL005", "verl", f"{VALUES}critic.ppo_max_token_len_per_gpu=65536 {CRITIC_CP}2", "verl=0.9.1", "fine"),
    (
        "VERL005",
        "verl",
        f"{VALUES}critic.ppo_max_token_len_per_gpu=65536 +critic.ppo_infer_max_token_len_per_gpu=65536",
        "verl=0.9.1",
        "fine",
    ),
    # The longest sequence against ppo_max_token_len_per_gpu (16384 unless set; a critic's 32768) x CP.
    ("VERL005", "verl", LONG, "", "error crash training"),
    ("VERL005", "verl", LONG_YAML, "", "warning crash training"),
    ("VERL005", "verl", f"{LONG}{A}megatron.context_parallel_size=2", "", "fine"),
    ("VERL005", "verl", f"{LONG}{A}megatron.context_parallel_size=2 data.max_prompt_length=1025", "", "all: VERL005"),
    ("VERL005", "verl", f"{LONG}{A}ppo_max_token_len_per_gpu=32768", "", "fine"),
    ("VERL005", "verl", f"{LONG}{A}ppo_max_token_len_per_gpu=32767", "", "all: VERL005"),
    ("VERL005", "verl", f"{LONG}{A}use_dynamic_bsz=False", "", "not concerned"),
    ("VERL005", "verl", f"{LONG}{A}megatron.dynamic_context_parallel=True", "", "not concerned"),
    ("VERL005", "verl", LONG.replace("megatron", "dp"), "", "not concerned"),
    ("VERL005", "mlm", "--seq-length 4096", "", "not concerned"),
    (
        "VERL005",
        "verl",
        f"{LONG.replace('grpo', 'gae')}{A}ppo_max_token_len_per_gpu=32768 critic.use_dynamic_bsz=True",
        "",
        "all:",
    ),
    (
        "VERL005",
        "verl",
        f"{LONG.replace('grpo', 'gae')}{A}ppo_max_token_len_per_gpu=32769 data.max_prompt_length=1025",
        "",
        "all: VERL005",
    ),
    ("VERL005", "verl", f"{LONG}{A}ppo_max_token_len_per_gpu=32768 {A}use_kl_loss=True", "", "all:"),  # ref has no such
    (
        "VERL005",
        "verl",
        f"{LONG.replace('grpo', 'gae')}{A}ppo_max_token_len_per_gpu=32768 critic.ppo_max_token_len_per_gpu=32767",
        "",
        "all: VERL005",
    ),
]

R_BUDGET, REF_BUDGET = (f"{section}log_prob_max_token_len_per_gpu=" for section in (R, "actor_rollout_ref.ref."))
ENOUGH = f"{LONG}{A}megatron.context_parallel_size=4 {A}ppo_max_token_len_per_gpu=8192 "  # 32768 tokens
WITH_LONG_REF = f"{ENOUGH}{A}use_kl_loss=True "
R_BY_TOKENS = f"{R}log_prob_use_dynamic_bsz="

VERDICTS += [
    ("VERL005", "verl", ENOUGH, "", "fine"),
    # The old log-probabilities, and the reference model's: each budget x CP, and each follows the actor's unless set.
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8191", "", "error crash training"),
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8191", "", "all: VERL005"),
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8192", "", "fine"),
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8191 algorithm.rollout_correction.bypass_mode=True", "", "fine"),
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8191 algorithm.rollout_correction.bypass_mode=False", "", "error"),
    ("VERL005", "verl", f"{ENOUGH}{REF_BUDGET}8191", "", "all:"),  # no reference model
    ("VERL005", "verl", f"{WITH_LONG_REF}{REF_BUDGET}8191", "", "all: VERL005"),
    ("VERL005", "verl", f"{WITH_LONG_REF}{REF_BUDGET}8192", "", "all:"),
    ("VERL005", "verl", f"{WITH_LONG_REF}{REF_BUDGET}8191 {R_BUDGET}8191", "", "all: VERL005"),
    ("VERL005", "verl", f"{WITH_LONG_REF}{REF_BUDGET}8191 actor_rollout_ref.model.lora.rank=16", "", "all:"),
    (
        "VERL005",
        "verl",
        f"{WITH_LONG_REF}{REF_BUDGET}8191 actor_rollout_ref.ref.log_prob_use_dynamic_bsz=False",
        "",
        "all:",
    ),
    # The worker asserts that both are equal (verl 0.8 and newer; before, only its new workers did).
    ("VERL007", "verl", f"{BY_TOKENS}{R_BY_TOKENS}False", "verl=0.9.1", "all: VERL007"),
    ("VERL007", "verl", f"{BY_TOKENS}{R_BY_TOKENS}False", "verl=0.8.0", "error crash init"),
    ("VERL007", "verl", f"{BY_TOKENS}{R_BY_TOKENS}False", "verl=0.7.1", "fine"),
    ("VERL007", "verl", f"{BY_TOKENS}{R_BY_TOKENS}False", "", "needs verl"),
    ("VERL007", "verl", f"{BY_TOKENS}{R_BY_TOKENS}True", "", "fine"),
    ("VERL007", "verl", f"{SOUND}{R_BY_TOKENS}True", "verl=0.9.1", "error"),
    ("VERL007", "verl", BY_TOKENS, "verl=0.9.1", "not concerned"),  # it follows
    ("VERL007", "verl", f"{BY_TOKENS.replace('megatron', 'dp')}{R_BY_TOKENS}False", "verl=0.9.1", "not concerned"),
]

TEXTS: list[Row] = [
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8191", "", "found: and rollout.log_prob_max_token_len_per_gpu 8191 x CP 4"),
    (
        "VERL007",
        "verl",
        f"{BY_TOKENS}{R_BY_TOKENS}False",
        "verl=0.9.1",
        "found: rollout.log_prob_use_dynamic_bsz False",
    ),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}1 {REF_CP}2", "verl=0.9.0", "message: silently trains wrongly"),
    ("VERL006", "verl", f"{WITH_SIZES}{ACTOR_CP}4 {REF_CP}2", "verl=0.9.0", "message: runs at context-parallel size 2"),
    # rule, dialect, launch, assumed, what the finding says
    ("VERL001", "verl", MEGATRON, "", "found: actor_rollout_ref.actor: use_dynamic_bsz False and no ppo_micro"),
    ("VERL001", "verl", WITH_CRITIC, "", "found: critic: use_dynamic_bsz False"),
    ("VERL001", "verl", f"{SOUND}{A}ppo_micro_batch_size=8", "", "found: both ppo_micro_batch_size_per_gpu and"),
    ("VERL002", "verl", WITH_REF, "", "found: actor_rollout_ref.ref: use_dynamic_bsz False and no log_prob"),
    ("VERL002", "verl", WITH_REF, "", "wanted: use_dynamic_bsz=True of the actor"),
    ("VERL003", "verl", CP_4, "", "found: 1024 sequences for DP 6 x micro-batch 2"),
    ("VERL005", "verl", LONG, "", "found: up to 32768 tokens, and ppo_max_token_len_per_gpu 16384 x CP 1"),
    ("VERL004", "verl", f"{SOUND}data.train_batch_size=128", "", "found: 128 with ppo_mini_batch_size 256"),
]

NO_ROLLOUT = f"{MEGATRON}{A}ppo_micro_batch_size_per_gpu=2 "

FIXES: list[FixRow] = [
    # 60 x 4 sequences are no whole micro-batches on DP 16; 64 prompts would be no whole mini-batches.
    (
        "VERL003",
        "verl",
        f"{CP_4.replace('nnodes=3', 'nnodes=8')}{R}n=4 data.train_batch_size=60 {A}ppo_mini_batch_size=60",
        "",
        (
            f"{A}ppo_micro_batch_size_per_gpu=1",
            f"data.train_batch_size=64 {A}ppo_mini_batch_size=64",
            "trainer.nnodes=6",  # 240 sequences are 10 micro-batches of 2 on DP 12
            f"{A}use_dynamic_bsz=true",
        ),
    ),
    (
        "VERL008",
        "verl",
        f"{SOUND}data.train_batch_size=384 {A}ppo_mini_batch_size=256",
        "",
        (f"{A}ppo_mini_batch_size=192", f"{A}ppo_mini_batch_size=384", "data.train_batch_size=512"),
    ),
    ("VERL005", "verl", f"{ENOUGH}{R_BUDGET}8191", "", (f"{R_BUDGET}8192",)),
    ("VERL007", "verl", f"{BY_TOKENS}{R_BY_TOKENS}False", "verl=0.9.1", (f"{R_BY_TOKENS}true",)),
    # rule, dialect, launch, assumed, what each fix writes
    (
        "VERL002",
        "verl",
        NO_ROLLOUT,
        "",
        (f"{R}log_prob_micro_batch_size_per_gpu=1", f"{A}use_dynamic_bsz=true"),
    ),
    (
        "VERL005",
        "verl",
        f"{LONG}{A}megatron.context_parallel_size=2 data.max_prompt_length=1025",
        "",
        (f"{A}ppo_max_token_len_per_gpu=16385",),
    ),
    ("VERL002", "verl", WITH_REF, "", ("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1",)),
    (
        "VERL002",
        "verl",
        f"{SOUND}{R}log_prob_micro_batch_size=8",
        "",
        (f"{R}log_prob_micro_batch_size=null", f"{A}use_dynamic_bsz=true"),
    ),
    ("VERL004", "verl", f"{SOUND}data.train_batch_size=128", "", (f"{A}ppo_mini_batch_size=128",)),
    (
        "VERL003",
        "verl",
        CP_4,
        "",
        (
            f"data.train_batch_size=1056 {A}ppo_mini_batch_size=264",
            "trainer.nnodes=2",
            f"{A}use_dynamic_bsz=true",
        ),
    ),
]
