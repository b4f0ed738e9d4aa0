"""Shell and sbatch scripts, and the words of launches, made from bash's grammar."""

from __future__ import annotations

from random import Random

from fuzzer.text import monster, value

FLAGS = (
    *("--context-parallel-size", "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--num-layers"),
    *("--hidden-size", "--num-attention-heads", "--num-query-groups", "--seq-length", "--max-position-embeddings"),
    *("--micro-batch-size", "--global-batch-size", "--cp-comm-type", "--hierarchical-context-parallel-sizes", "--bf16"),
    *("--sequence-parallel", "--expert-model-parallel-size", "--num-experts", "--window-size", "--softmax-type"),
    *(
        "--attention-backend",
        "--transformer-impl",
        "--hybrid-context-parallel",
        "--max-seqlen-per-dp-cp-rank",
        "--save",
    ),
    *("--load", "--calculate-per-token-loss", "--use-mcore-models", "--multi-latent-attention", "--kv-channels"),
    *("--context_parallel_size", "--global_batch_size", "--use_megatron_fsdp", "--max_length", "--model"),
    *("--actor-num-nodes", "--rollout-batch-size", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "--qkv-format"),
    *("--recompute-granularity", "--decoder-first-pipeline-num-layers", "--yaml-cfg", "--no-such-flag", "--te-x"),
)
KEYS = (
    *("model.context_parallel_size", "model.cp_comm_type", "model.hierarchical_context_parallel_sizes"),
    *("model.seq_length", "dataset.sequence_length", "train.global_batch_size", "model.tensor_model_parallel_size"),
    *("checkpoint.save", "model.num_layers", "model.window_size", "a", "a.b.c", "model", "_target_", "defaults"),
    *("actor_rollout_ref.actor.megatron.context_parallel_size", "actor_rollout_ref.actor.strategy"),
    *("actor_rollout_ref.actor.megatron.dynamic_context_parallel", "actor_rollout_ref.model.path", "trainer.nnodes"),
    *(
        "actor_rollout_ref.actor.megatron.max_seqlen_per_dp_cp_rank",
        "data.max_response_length",
        "trainer.n_gpus_per_node",
    ),
    *("critic.megatron.context_parallel_size", "+actor_rollout_ref.actor.megatron.override_transformer_config.x"),
    *("policy.megatron_cfg.context_parallel_size", "policy.megatron_cfg.enabled", "policy.dtensor_cfg.enabled"),
    *(
        "policy.sequence_packing.enabled",
        "policy.train_global_batch_size",
        "cluster.num_nodes",
        "context_parallel_size",
    ),
)
SLURM = (
    *(
        "--nodes",
        "--ntasks-per-node",
        "--gpus-per-node",
        "--gres",
        "--time",
        "--signal",
        "--export",
        "--array",
        "--mem",
    ),
    *(
        "--requeue",
        "--exclusive",
        "--output",
        "--distribution",
        "--switches",
        "--segment",
        "--cpus-per-task",
        "-N",
        "-n",
    ),
)
LAUNCHERS = (
    *(
        "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py",
        "python3 pretrain_gpt.py",
        "srun python pretrain_gpt.py",
    ),
    *(
        "torchrun --nproc_per_node=$G -m megatron.training.x",
        "python3 -m verl.trainer.main_ppo",
        "bash -c 'torchrun x.py'",
    ),
    *(
        "srun -N 2 --container-image=x bash -c",
        "ray job submit -- python3 -m verl.trainer.main_ppo",
        "ft_launcher t.py",
    ),
    *("python -m torch.distributed.run pretrain_gpt.py", "torchrun scripts/training/run_recipe.py --recipe llama3_8b"),
    *("uv run examples/run_grpo.py --config x.yaml", "NPROC_PER_NODE=8 megatron sft", "swift sft"),
    *("python3 train.py --actor-num-nodes 1", "ray job submit -- python3 train_async.py"),
)
_NAMES = (
    "A",
    "ARGS",
    "X",
    "i",
    "NODES",
    "SLURM_NNODES",
    "MASTER_ADDR",
    "CP",
    "HF_TOKEN",
    "IFS",
    "PATH",
    "@",
    "1",
    "?",
    "#",
)
_DECLARES = ("export", "declare -i", "local", "readonly", "declare -A", "unset", "typeset")
_ENDS = ("E", "-E", "'E'")
_CHANGES = (":-", ":=", ":+", ":?", "-", "%%", "##", "/", "//", "^^", ",,", ":", "#", "@")
_FIRSTS, _LASTS = ("1", "-5", "a", "01"), ("9", "100000", "z", "-9")
_TESTS = ("-z", "-n", "-f", "-d", "!", "-v")
_BINARY = ("==", "!=", "=~", "-eq", "-lt", "-gt", "<", ">", "=")


def launch_words(random: Random) -> list[str]:
    """The words of a launch of any dialect, as they follow `--`."""
    words: list[str] = []
    for _ in range(random.choice((1, 3, 6, 12, 30))):
        how = random.random()
        if how < 0.5:
            flag = random.choice(FLAGS)
            words += [f"{flag}={value(random)}"] if random.random() < 0.3 else [flag, value(random)]
        elif how < 0.9:
            words.append(random.choice(("", "", "+", "++", "~")) + f"{random.choice(KEYS)}={value(random)}")
        else:
            words.append(monster(random))
    return words


def script(random: Random) -> str:
    """A script: mostly a header, some statements, and a launch."""
    lines = ["#!/bin/bash"] if random.random() < 0.7 else []
    if random.random() < 0.4:
        lines += [f"#SBATCH {random.choice(SLURM)}={value(random)}" for _ in range(random.randint(1, 5))]
    lines += [statement(random, 3) for _ in range(random.choice((0, 1, 2, 4, 8)))]
    lines.append(_launch(random))
    if random.random() < 0.2:
        lines.append(statement(random, 2))
    return "\n".join(lines) + random.choice(("\n", "\n", "", "\\", "\n\n"))


def statement(random: Random, depth: int) -> str:
    """A statement of bash's grammar, in which a monster may stand wherever a word may."""
    if depth <= 0:
        return random.choice((f"{_name(random)}={word(random, 0)}", f"echo {word(random, 0)}", _launch(random)))
    body = lambda: "\n".join(statement(random, depth - 1) for _ in range(random.choice((1, 1, 2))))  # noqa: E731
    one = word(random, depth - 1)
    name = _name(random)
    kinds = (
        lambda: f"{name}={one}",
        lambda: f"{random.choice(_DECLARES)} {name}={one}",
        lambda: f"{name}=({' '.join(word(random, depth - 1) for _ in range(random.randint(0, 5)))})",
        lambda: f"{name}+=({one} [3]={one})",
        lambda: f"{name}+={one}",
        lambda: f"{name}[{_sum(random, 2)}]={one}",
        lambda: f"if {_test(random)}; then\n{body()}\nelif {_test(random)}; then\n{body()}\nelse\n{body()}\nfi",
        lambda: f"for {name} in {one} {word(random, 1)}; do {body()}; done",
        lambda: f"for (({name}=0; {name}<{_sum(random, 1)}; {name}++)); do {body()}; done",
        lambda: f"while {_test(random)}; do\n{body()}\n{random.choice(('break', 'continue', 'shift', ''))}\ndone",
        lambda: f"until {_test(random)}; do {body()}; done",
        lambda: f"case {one} in\n {one}|*) {body()};;\n [a-z]*) {body()};&\n esac",
        lambda: f"f{random.randint(0, 3)}() {{\n{body()}\n}}\nf{random.randint(0, 3)} {one}",
        lambda: f"function g {{ {body()}; return {one}; }}; g {one}",
        lambda: f"({body()})",
        lambda: f"{{ {body()}; }} > out.txt 2>&1 < /dev/null",
        lambda: f"cat <<{random.choice(_ENDS)} > {random.choice(('x.sh', 'x.yaml'))}\n{body()}\nE",
        lambda: f"read {name} <<< {one}",
        lambda: f"{body()} {random.choice(('&&', '||', '|', ';', '&', '|&'))} {body()}",
        lambda: f"eval {one}",
        lambda: f"set -- {one} {one}; shift {word(random, 1)}",
        lambda: f"source {random.choice(('beside.sh', './beside.sh', one))}",
        lambda: f"(( {name} {random.choice(('=', '+=', '<<=', '**', '/', '%'))} {_sum(random, 3)} ))",
        lambda: f"let {name}={_sum(random, 2)}",
        lambda: f"printf -v {name} '{monster(random)}' {one}",
        lambda: f"mapfile -t {name} < <({body()})",
        lambda: f"{name}=$({body()})",
        lambda: f"trap {one} EXIT; {random.choice(('exit', 'return', 'exec', 'cd', 'pushd', 'ulimit'))} {one}",
        lambda: f"# {monster(random)}",
        lambda: monster(random),
    )
    return random.choice(kinds)()


def word(random: Random, depth: int) -> str:
    """A word, with expansions inside expansions."""
    if depth <= 0:
        return value(random)
    inner = word(random, depth - 1)
    name = _name(random)
    return random.choice(
        (
            inner,
            f'"{inner}"',
            f"'{inner}'",
            f"$'{inner}'",
            f"${name}",
            f'"${{{name}[@]}}"',
            f"${{{name}{random.choice(_CHANGES)}{inner}}}",
            f"${{{name}:{_sum(random, 1)}:{_sum(random, 1)}}}",
            f"${{{name}/{inner}/{inner}}}",
            f"${{#{name}}}",
            f"${{!{name}{random.choice(('', '*', '@'))}}}",
            f"${{{name}[{_sum(random, 1)}]}}",
            f"$(({_sum(random, 3)}))",
            f"$(echo {inner})",
            f"`echo {inner}`",
            f"{{{inner},{inner}}}",
            f"{{{random.choice(_FIRSTS)}..{random.choice(_LASTS)}..{random.choice(('1', '0', '-3'))}}}",
            f"{inner}{word(random, depth - 1)}",
        )
    )


def _name(random: Random) -> str:
    return random.choice(_NAMES)


def _sum(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(
            ("1", "8", "0", "x", "A", "08", "0x1f", "64#z", "9" * 30, "$X", "-1", "SLURM_NNODES", "''")
        )
    left, right = _sum(random, depth - 1), _sum(random, depth - 1)
    sign = random.choice(
        ("+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^", "&&", "||", ",", "==", "? 1 :", "=")
    )
    return random.choice(
        (f"{left} {sign} {right}", f"({left}{sign}{right})", f"!{left}", f"~{left}", f"{left}++", left)
    )


def _test(random: Random) -> str:
    left, right = word(random, 1), word(random, 1)
    if random.random() < 0.2:
        return random.choice(("true", "false", ":", f"(( {_sum(random, 2)} ))", f"test {left}", f"command -v {left}"))
    bracket = random.choice((("[[", "]]"), ("[", "]")))
    inner = f"{random.choice(_TESTS)} {left}" if random.random() < 0.3 else f"{left} {random.choice(_BINARY)} {right}"
    if random.random() < 0.1:
        inner = f"{inner} && ( {inner} || ! {inner} )"
    if random.random() < 0.1:
        inner = f"{left} =~ ^({right}|a|aa)*(a+)+$"
    return f"{bracket[0]} {inner} {bracket[1]}"


def _launch(random: Random) -> str:
    words = [random.choice(LAUNCHERS)]
    for _ in range(random.choice((1, 4, 8, 16))):
        words.append(f"{random.choice(FLAGS)} {word(random, random.choice((0, 0, 0, 1, 2)))}")
    if random.random() < 0.4:
        words += [f"{random.choice(KEYS)}={word(random, 1)}" for _ in range(random.randint(1, 6))]
    words += random.choice(([], ['"${ARGS[@]}"'], ["$A"], ["> out.log 2>&1 &"], ["'"]))
    return random.choice((" ", " ", " \\\n  ")).join(words)
