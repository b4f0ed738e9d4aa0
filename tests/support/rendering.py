"""What the tests of `hcp render` give it: launches, and the facts of a site."""

HCP_WORDS = (
    "--tensor-model-parallel-size 2 --context-parallel-size 4 --cp-comm-type a2a+p2p "
    "--hierarchical-context-parallel-sizes 2 2 --seq-length 131072 --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--no-create-attention-mask-in-dataloader --save /ckpt/run --load /ckpt/run --exit-signal-handler"
).split()
VERL_WORDS = (
    "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.context_parallel_size=2 "
    "actor_rollout_ref.actor.use_dynamic_bsz=True trainer.default_local_dir=/ckpt/run "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct"
).split()
SITE = ("--gpus-per-node 8 --time 4:00:00 --arch sm90 --account proj --partition batch").split()


def refused(hcp, *words, cwd=None):
    """What `hcp render` says against the words, in one line; it writes no script."""
    done = hcp("render", *words, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("hcp: ")
    return done.stderr
