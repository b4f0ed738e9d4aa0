"""Facts without a model flag: how ranks are started, on what, with which environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from megatron_hcp.bash.value import Span, Value, default_of, reason_of, text_of
from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.ground.secrets import is_secret_name, without_secrets
from megatron_hcp.launch.fact import ELASTIC_STARTS, Fact
from megatron_hcp.launch.forms.script.flags import location_of
from megatron_hcp.launch.forms.script.options import Option, gpu_count
from megatron_hcp.launch.forms.script.started import Launched, StartContext


class Facts:
    """Collects facts, and why others are unknown. Facts are printed, so credentials are left out."""

    def __init__(self) -> None:
        self.known: dict[str, Fact] = {}
        self.unknown: dict[str, str] = {}

    def put(self, name: str, value: object, span: Span | None = None, key: str | None = None) -> None:
        value = without_secrets(value) if isinstance(value, str) else value
        self.known[name] = Fact(value, "launch", location_of(span) if span is not None else None, key)
        self.unknown.pop(name, None)

    def lack(self, name: str, reason: str) -> None:
        if name not in self.known:
            shown = without_secrets(reason)
            self.unknown[name] = reason if shown == reason else shown


def facts_of(launched: Launched, by_ray: bool) -> Facts:
    """The facts of one started program. `by_ray`: it has Ray start its ranks."""
    facts = Facts()
    context = launched.started.context
    if launched.started.script is not None:
        facts.put("script", launched.started.script)
    if context.by_srun:
        facts.put("srun", True)
    _options(facts, context)
    _environment(facts, launched)
    start = "ray" if by_ray and context.start in ("python", "srun") else context.start
    if start is None:
        facts.lack("start", context.doubt or "not known")
    else:
        facts.put("start", start)
    if start in ELASTIC_STARTS:
        _torchrun(facts, context)
    elif start != "ray":
        _slurm(facts, context, start == "srun")
        _other_ranks(facts, context, start)
    return facts


def _other_ranks(facts: Facts, context: StartContext, start: str | None) -> None:
    """The ranks that mpirun starts, or that the variables of a plain python command give (`WORLD_SIZE=48 python …`)."""
    ranks, per_node = context.options.get("mpirun.np"), context.options.get("mpirun.ranks_per_node")
    if ranks is not None:
        _put_number(facts, "world_size", ranks)
    elif context.doubt == "started by mpirun" and "pod.ntasks_per_node" in context.options:
        if "nodes" in facts.known and "ntasks_per_node" in facts.known:
            _multiply(facts, "nodes", "ntasks_per_node", context)
    elif "mpirun" in context.hidden:
        facts.lack("world_size", context.hidden["mpirun"])
    if per_node is not None:
        _put_number(facts, "gpus_per_node", per_node)
        if ranks is not None:
            _divide(facts, "world_size", "gpus_per_node", "nodes", ranks.span)
    counted = facts.known.get("env.WORLD_SIZE")
    if start == "python" and counted is not None and "world_size" not in facts.known:
        number = whole_number(str(counted.value), 9) if str(counted.value).isdecimal() else None
        if number:
            facts.known["world_size"] = counted._replace(value=number)


def _options(facts: Facts, context: StartContext) -> None:
    for name, option in context.options.items():
        plain = option.plain
        if plain is None:
            facts.lack(name, reason_of(option.value or ()))
        else:
            facts.put(name, plain, option.span, option.written)
            _note_default(facts, name, option.value)
    for program, why in context.hidden.items():
        if program in ("srun", "sbatch"):
            facts.put(f"{program}.unseen", why)


def _note_default(facts: Facts, name: str, value: Value | None) -> None:
    """Keeps of which variable an address to meet at is the default: `--master-addr ${MASTER_ADDR:-localhost}`."""
    variable = default_of(value or ())
    if variable and name in _ADDRESSES:
        facts.put(f"default_of.{name}", variable)
    if variable and name in ("torchrun.nnodes", "torchrun.nproc_per_node"):
        facts.put("default_of.nodes", variable)


def _environment(facts: Facts, launched: Launched) -> None:
    export = launched.started.context.options.get("srun.export")
    names = _exported(export)
    found: dict[str, tuple[Value | None, Span | None]] = {}
    for name, var in launched.environment.items():
        if names is not None and name not in names:
            continue
        if var.exported is None:
            facts.lack(f"env.{name}", reason_of(var.value or ()) if var.value else "is set on some paths only")
            continue
        found[name] = (var.value if var.items is None else (), var.span)
    for name, (given, place) in launched.started.context.environment.items():
        found[name] = (given, place)
    if export is not None and isinstance(export.plain, str):
        for entry in export.plain.split(","):
            name, equals, word = entry.partition("=")
            if equals and name.isidentifier() and not is_secret_name(name):
                facts.put(f"env.{name}", word, export.span, name)
    if (reason := launched.started.context.hidden.get("env")) is not None:
        facts.lack("env", reason)
    for name, (value, span) in found.items():
        if is_secret_name(name):
            continue
        text = text_of(value) if value is not None else None
        if value is not None and text is None:
            facts.lack(f"env.{name}", reason_of(value))
        else:
            facts.put(f"env.{name}", text, span, name)
            _note_default(facts, f"env.{name}", value)


def _exported(option: Option | None) -> frozenset[str] | None:
    """The names that srun passes on; None = all of them."""
    text = option.plain if option is not None else None
    if not isinstance(text, str) or "ALL" in text.split(","):
        return None
    return frozenset(entry.partition("=")[0] for entry in text.split(","))


def _torchrun(facts: Facts, context: StartContext) -> None:
    hidden = context.hidden.get("torchrun")
    options = {
        name.removeprefix("torchrun."): option
        for name, option in context.options.items()
        if name.startswith("torchrun.")
    }
    _ntasks_per_node(facts, context)
    if hidden is not None:
        for name in _RENDEZVOUS:
            facts.lack(f"torchrun.{name}", hidden)
    nodes = options.get("nnodes")
    if nodes is None and "standalone" in options:
        facts.put("nodes", 1, options["standalone"].span, "--standalone")
    elif nodes is None:
        if not _by_variable(facts, "nodes", "PET_NNODES"):
            _default_one(facts, "nodes", "--nnodes", hidden)
    elif not _put_number(facts, "nodes", nodes, elastic=True) and (slurm := _slurm_option(context, "nodes")):
        _put_number(facts, "nodes", slurm)
    per_node = options.get("nproc_per_node")
    if per_node is None and str(_variable(facts, "PET_NPROC_PER_NODE")) in ("auto", "gpu"):
        _slurm_gpus(facts, context)
    elif per_node is None:
        if not _by_variable(facts, "gpus_per_node", "PET_NPROC_PER_NODE"):
            _default_one(facts, "gpus_per_node", "--nproc-per-node", hidden)
    elif not _put_number(facts, "gpus_per_node", per_node):
        _slurm_gpus(facts, context)


_ADDRESSES = ("torchrun.rdzv_endpoint", "torchrun.master_addr", "env.PET_RDZV_ENDPOINT", "env.PET_MASTER_ADDR")
_RENDEZVOUS = ("rdzv_endpoint", "rdzv_backend", "master_addr", "node_rank")


def _variable(facts: Facts, name: str) -> object:
    fact = facts.known.get(f"env.{name}")
    return None if fact is None else fact.value


def _by_variable(facts: Facts, name: str, variable: str) -> bool:
    """Whether a variable replaces an option of torchrun that isn't given, and so sets the fact or why it is missing."""
    facts.unknown.update(
        {
            f"torchrun.{other}": f"torchrun reads it from PET_{other.upper()}"
            for other in _RENDEZVOUS
            if f"torchrun.{other}" not in facts.known and f"env.PET_{other.upper()}" in {**facts.known, **facts.unknown}
        }
    )
    if f"env.{variable}" in facts.unknown:
        facts.lack(name, facts.unknown[f"env.{variable}"])
        return True
    number = whole_number(str(_variable(facts, variable)), 9)
    if number is None:
        return False
    facts.known[name] = facts.known[f"env.{variable}"]._replace(value=number)
    return True


def _default_one(facts: Facts, name: str, flag: str, hidden: str | None) -> None:
    """torchrun's default of --nnodes and --nproc-per-node is 1."""
    if hidden is not None:
        facts.lack(name, hidden)
    else:
        facts.known[name] = Fact(1, "default", None, flag)


def _put_number(facts: Facts, name: str, option: Option, elastic: bool = False) -> bool:
    """The option's value as the fact's number; False if it isn't one."""
    text = option.plain
    if isinstance(text, str):
        low, colon, high = text.strip().partition(":" if elastic else "-")
        number = whole_number(low, 9)
        if number is not None and low.isdecimal() and number > 0 and (not colon or low == high):
            facts.put(name, number, option.span, option.written)
            return True
        facts.lack(name, f"{option.written} is {text[:40]!r}")
    elif text is None:
        facts.lack(name, reason_of(option.value or ()))
    return False


def _slurm_option(context: StartContext, name: str) -> Option | None:
    """The option of srun, else of the job: Slurm's, PBS's, or the size of a Kubernetes workload."""
    options = (context.options.get(f"{program}.{name}") for program in ("srun", "sbatch", "pbs", "pod"))
    return next(filter(None, options), None)


def _ntasks_per_node(facts: Facts, context: StartContext) -> None:
    option = _slurm_option(context, "ntasks_per_node")
    if option is not None:
        _put_number(facts, "ntasks_per_node", option)


def _slurm(facts: Facts, context: StartContext, is_srun: bool) -> None:
    _ntasks_per_node(facts, context)
    nodes, tasks = _slurm_option(context, "nodes"), _slurm_option(context, "ntasks")
    if nodes is not None:
        _put_number(facts, "nodes", nodes)
    elif is_srun and tasks is None and any(name.startswith("sbatch.") for name in context.options):
        facts.lack("nodes", "no #SBATCH line says how many nodes the job has, so sbatch's command line may")
    _slurm_gpus(facts, context)
    if not is_srun:
        return
    known = facts.known
    if tasks is not None:
        _put_number(facts, "world_size", tasks)
        _divide(facts, "world_size", "nodes", "ntasks_per_node", tasks.span)
        _divide(facts, "world_size", "ntasks_per_node", "nodes", tasks.span)
    elif "nodes" in known and "ntasks_per_node" in known:
        _multiply(facts, "nodes", "ntasks_per_node", context)
    if "gpus_per_node" not in known and "ntasks_per_node" in known:
        fact = known["ntasks_per_node"]
        known["gpus_per_node"] = fact._replace(origin="derived")
        facts.unknown.pop("gpus_per_node", None)
    distribution = _slurm_option(context, "distribution")
    if distribution is not None and isinstance(distribution.plain, str):
        word = re.split(r"[:,]", distribution.plain.strip().lower())[0]
        facts.put("placement", "block" if word in ("*", "") else word, distribution.span, distribution.written)
    elif distribution is not None:
        facts.lack("placement", reason_of(distribution.value or ()))


def _multiply(facts: Facts, one: str, other: str, context: StartContext) -> None:
    first, second = facts.known[one], facts.known[other]
    facts.known["world_size"] = second._replace(value=first.value * second.value, origin="derived")


def _divide(facts: Facts, total: str, by: str, name: str, span: Span) -> None:
    known = facts.known
    if name in known or total not in known or by not in known or known[total].value % known[by].value:
        return
    known[name] = Fact(known[total].value // known[by].value, "derived", location_of(span), known[total].key)


def _slurm_gpus(facts: Facts, context: StartContext) -> None:
    for name in ("gpus_per_node", "gres"):
        option = _slurm_option(context, name)
        text = option.plain if option is not None else None
        count = gpu_count(text) if isinstance(text, str) else None
        if option is not None and count is not None:
            facts.put("gpus_per_node", count, option.span, option.written)
            return
        if option is not None and text is None:
            facts.lack("gpus_per_node", reason_of(option.value or ()))
    total, nodes = _slurm_option(context, "gpus"), facts.known.get("nodes")
    count = gpu_count(total.plain) if total is not None and isinstance(total.plain, str) else None
    if total is not None and count is not None and nodes is not None and count % nodes.value == 0:
        facts.put("gpus_per_node", count // nodes.value, total.span, total.written)


def is_parallel(names: Mapping[str, object] | set[str]) -> bool:
    """Whether flags or overrides say how the model that trains is split; the one that generates is split apart."""
    return any(_PARALLEL.search(name) and ".rollout." not in name for name in names)


_PARALLEL = re.compile(
    r"model_parallel_size|context_parallel|cp_comm_type|expert_tensor_parallel|(^--|\.)(tp|cp|pp|ep)$"
)
