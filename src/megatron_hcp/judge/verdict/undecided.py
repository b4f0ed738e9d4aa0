"""Which error rules stay undecided because the launch hides a setting that they depend on.

A rule may have passed only because a setting was hidden. Every hidden fact that a rule requests is therefore tried at
its legal values: the rule is undecided if one of them leads to an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from megatron_hcp.judge.report import Undecided
from megatron_hcp.judge.ruling import Ruling, judge
from megatron_hcp.judge.verdict.legal import legal_values
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.hidden import Hidden, Hides, hidden, key_to_set
from megatron_hcp.rules.rule import Rule
from megatron_hcp.rules.view import View

_MOST_TRIALS = 500
"""Trials per rule; a rule that isn't settled by then counts as undecided."""
_MOST_AFTER = 25
"""The same once a rule is known to be undecided: the verdict is then fixed, and only the list of facts can grow."""
_MOST_SHOWN = 3
_WITHOUT_CP = {
    "cp": 1,
    "hcp_sizes": None,
    "cp_comm_type": None,
    "hybrid_context_parallel": False,
    "dynamic_context_parallel": False,
}
_GIVE_ARGUMENTS = "give the script's arguments with --args WORDS"
_WORDS: frozenset[Hides] = frozenset(("word",))
_ANYTHING: frozenset[Hides] = frozenset(("word", "recipe"))
_MODEL: frozenset[Hides] = _ANYTHING | {"model"}
_SIZES = frozenset("heads kv_heads num_query_groups num_experts num_layers".split())
"""The model's sizes that the parallel sizes must divide."""


def undecided_by(launch: Launch, rulings: Iterable[Ruling]) -> tuple[Undecided, ...]:
    """What the launch hides although an error rule depends on it, one entry per reason, the one with most rules first.

    Of what the launch leaves to its model's own config, the sizes that a layout divides count, and for rules about
    context parallelism everything: `not_checked` lists the rest. A release that isn't stated leaves no launch
    undecided.
    """
    trials = _Trials(launch)
    needs: dict[Hidden, list[str]] = {}
    for ruling in rulings:
        for name in _open_facts(trials, ruling):
            found = trials.hidden(name)
            assert found is not None, f"{name} was tried, so it must be hidden"
            needs.setdefault(found, []).append(name)
        trials.most = _MOST_AFTER if needs else _MOST_TRIALS
    entries = sorted(needs.items(), key=lambda entry: (entry[0].hides != "word", -len(entry[1])))
    return tuple(entry_of(launch, found, names) for found, names in entries)


def doubted(launch: Launch, ruling: Ruling) -> str | None:
    """A setting that the launch writes but hides, some legal value of which clears the rule's error; else None.

    A rule may read such a setting as absent if it only sharpens the finding.
    """
    if not ruling.is_error:
        return None
    trials = _Trials(launch)
    for name in ruling.asked:
        is_hidden = name in launch.unknown and name not in launch.facts and trials.hidden(name)
        if is_hidden and trials.passes_at(ruling.rule, name):
            return name
    return None


def entry_of(launch: Launch, found: Hidden, names: list[str]) -> Undecided:
    """What one reason hides, `names` being the facts that rules or guards depend on."""
    count = {name: names.count(name) for name in names}
    needs = tuple(sorted(count, key=lambda name: (-count[name], name)))
    argument = found.variable if found.variable == "@" or found.variable.isdecimal() else ""
    do = found.do or (_GIVE_ARGUMENTS if argument else _how(launch, found, needs))
    return Undecided(found.reason, needs, found.location, do, argument)


def once_for_arguments(undecided: Sequence[Undecided]) -> list[Undecided]:
    """The same, first what the script's arguments decide, as one: giving them answers all of it."""
    theirs = [item for item in undecided if item.argument]
    others = [item for item in undecided if not item.argument]
    if len(theirs) < 2:
        return [*theirs, *others]
    names = ", ".join(
        f"${name}" for name in sorted({item.argument for item in theirs}, key=lambda name: (len(name), name))
    )
    needs = tuple(dict.fromkeys(need for item in theirs for need in item.needs))
    reason = f"the launch depends on the script's arguments ({names})"
    place = next((item.location for item in theirs if item.location), None)
    return [Undecided(reason, needs, place, _GIVE_ARGUMENTS, "@"), *others]


def _how(launch: Launch, found: Hidden, needs: tuple[str, ...]) -> str:
    """What to do: the settings to state, first those that most rules depend on."""
    settings = list(dict.fromkeys(key_to_set(launch, name) for name in needs))
    is_long = len(settings) > _MOST_SHOWN
    shown = f"{settings[0]} … ({len(settings)} settings)" if is_long else " ".join(settings)
    if found.hides == "recipe":
        return (
            f"name the recipe with --recipe, state its settings ({shown}), or check the YAML that its --dryrun writes"
        )
    if found.variable and (is_long or found.by == "branch"):
        return f"state {found.variable} with --assume env.{found.variable}=VALUE"
    if found.reason == launch.reading.unseen and found.by == "command":
        return f"write in the script what that command prints, or state what it sets ({shown})"
    return f"give {'its value' if len(settings) == 1 else 'its values'} with {shown}"


def _open_facts(trials: _Trials, ruling: Ruling) -> tuple[str, ...]:
    """The hidden facts with a legal value that would lead to an error; none if the rule is decided."""
    launch = trials.launch
    doubt = doubted(launch, ruling)
    if doubt is not None:
        found = trials.hidden(doubt)
        return () if found is not None and found.hides == "release" else (doubt,)
    if ruling.is_error or not _can_err(trials, ruling.rule):
        return ()
    if not any(map(trials.hidden, trials.absent(ruling))):
        return ()
    if ruling.rule.recipe_settled:
        return trials.run(ruling, _WORDS)
    open_facts = trials.run(ruling, _ANYTHING)
    if open_facts or not trials.met_model:
        return open_facts
    open_facts = trials.run(ruling, _MODEL, only=_SIZES)
    cp = launch.facts.get("cp")
    if open_facts or launch.dialect == "bridge" or (cp is not None and cp.value == 1):
        return open_facts
    open_facts = trials.run(ruling, _MODEL)
    if not open_facts:
        return ()
    without_cp = _Trials(launch, {name: Fact(value, "launch") for name, value in _WITHOUT_CP.items()}, trials.most)
    return () if without_cp.run(without_cp.judge(ruling.rule, {}), _MODEL) else open_facts


def _can_err(trials: _Trials, rule: Rule) -> bool:
    """Whether the rule has errors, and the release that a row of known faults needs is stated or hidden."""
    if rule.severity != "error" and not rule.may_be_error:
        return False
    return not rule.is_row or rule.limit_of in trials.launch.facts or trials.hidden(rule.limit_of) is not None


class _Trials:
    """Runs rules with hidden facts at legal values until one leads to an error or nothing is left to try.

    `start` replaces facts of the launch. `most` bounds the trials of a run.
    """

    def __init__(self, launch: Launch, start: Mapping[str, Fact] | None = None, most: int = _MOST_TRIALS) -> None:
        self.launch = launch
        self.most = most
        self.met_model = False
        """Whether the last run came to a fact that only the model decides, and left it alone."""
        self._left = 0
        self._hidden: dict[str, Hidden | None] = {}
        self._legal: dict[str, tuple[Fact, ...]] = {}
        self._start = start or {}
        self._facts = {**launch.facts, **self._start}
        """What rules read. A trial writes its values into it, and takes them out again."""
        self._view = View(launch._replace(facts=self._facts))
        self._kinds = _ANYTHING
        self._only: frozenset[str] | None = None

    def run(self, ruling: Ruling, kinds: frozenset[Hides], only: frozenset[str] | None = None) -> tuple[str, ...]:
        """The facts of these kinds, of those in `only` if it is given, that lead to an error at some legal value.

        `ruling` is the one with nothing tried.
        """
        self._left, self._kinds, self._only, self.met_model = self.most, kinds, only, False
        return self._below(ruling, {}) or ()

    def passes_at(self, rule: Rule, name: str) -> bool:
        """Whether the rule finds nothing at some legal value of the fact."""
        return any(self.judge(rule, {name: fact}).problem is None for fact in self._legal_facts(name))

    def absent(self, ruling: Ruling) -> list[str]:
        """The facts that the rule asked for and the launch doesn't have, first the one that ended it."""
        first = [] if ruling.lacks is None else [ruling.lacks]
        return first + [name for name in ruling.asked if name not in self.launch.facts]

    def hidden(self, name: str) -> Hidden | None:
        if name not in self._hidden:
            self._hidden[name] = hidden(self.launch, name)
        return self._hidden[name]

    def _legal_facts(self, name: str) -> tuple[Fact, ...]:
        if name not in self._legal:
            self._legal[name] = tuple(Fact(value, "launch") for value in legal_values(self.launch, name))
        return self._legal[name]

    def _below(self, ruling: Ruling, given: dict[str, Fact]) -> tuple[str, ...] | None:
        self._left -= 1
        if self._left < 0:
            return tuple(given) if self.most == _MOST_TRIALS else ()
        if ruling.is_error:
            return self._guilty(ruling.rule, given)
        for name in self.absent(ruling):
            found = None if name in given or name in self._start else self.hidden(name)
            if found is None or (self._only is not None and name not in self._only):
                continue
            if found.hides not in self._kinds:
                self.met_model = self.met_model or found.hides == "model"
                continue
            # Names that are requested later are tried under each value of this one.
            for fact in self._legal_facts(name):
                tried = {**given, name: fact}
                fails = self._below(self.judge(ruling.rule, tried), tried)
                if fails is not None:
                    return fails
            return None
        return None

    def judge(self, rule: Rule, given: Mapping[str, Fact]) -> Ruling:
        """What the rule makes of the launch with these facts, which it doesn't have itself."""
        self._facts.update(given)
        ruling = judge(self._view, rule)
        for name in given:
            del self._facts[name]
        return ruling

    def _guilty(self, rule: Rule, given: Mapping[str, Fact]) -> tuple[str, ...]:
        """Of the values that lead to an error, those without which there is none."""
        guilty = []
        for name in given:
            without = {other: fact for other, fact in given.items() if other != name}
            # Of sizes, null is last: most rules find nothing then.
            tried = ({**without, name: fact} for fact in reversed(self._legal_facts(name)))
            if any(self.judge(rule, values).problem is None for values in tried):
                guilty.append(name)
        return tuple(guilty) or tuple(given)
