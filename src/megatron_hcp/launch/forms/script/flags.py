"""A training command's words as settings, with the reason for those that can't be determined."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from megatron_hcp.bash.value import Field, Item, Items, Lit, Maybe, Span, Unseen, reason_of
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.forms.words.settings import Word, option_setting

_FLAG = re.compile(r"--[A-Za-z]")
_SHORT_FLAG = re.compile(r"-[a-z]{1,3}")
_KEY = r"([+]{0,2}|~)([A-Za-z_][\w.@/:-]*)="
_BARE_FLAG = r"(no|use|disable|untie|overlap|enable)_"
_SEVERAL = (
    r"(data_path|data_args|prompt_data|special_tokens)$|^(data|blend)|^(cuda_graph_(modules|scope)|recompute_modules|offload_modules"
    r"|high_priority_stream_groups|iterations_to_skip|moe_aux_loss_coeff|moe_router_load_balancing_type|mrope_section"
    r"|profile_ranks|rampup_batch_size|spec)$"
)
"""Options with several values (`nargs`), besides those whose fact says so."""
_ENOUGH = {"sizes": 2, "comm": 1}
"""Type of a fact -> how many values such an option usually has: an unknown word after them may as well be options."""
_ARGUMENTS = r"(?i)(ARG|OPT|OPTION|FLAG|EXTRA|PARAM|OVERRIDE|CONFIG|CMD)"
_ONE_VALUE = r"(?i)(PATH|FILE|DIR|NAME)\W*$"
"""How names of variables end that hold a single value: EVAL_CONFIG_PATH, OUTPUT_DIR."""
_OF_MODEL = r"MODEL_ARGS"
"""In the name of the variable that holds the model's options in scripts of frameworks on top of Megatron-LM."""
_SET_HERE = rb"MODEL_ARGS\+?=\(?[\s\"']*$"


class Gathered(NamedTuple):
    """`settings` as read, `unknown` key -> why, and why further ones may exist that couldn't be seen.

    `model` is that reason for words which, by their variable's name, are the model's options.
    """

    settings: tuple[Setting, ...]
    unknown: dict[str, str]
    unseen: str | None
    model: str | None = None


def location_of(span: Span) -> Location:
    return span[0].location(span[1], span[2])


def flags_of(items: Iterable[Item], types: Mapping[str, str], *, short: bool = False, bare: bool = True) -> Gathered:
    """A command line's flags. As in argparse, the last occurrence of a name counts.

    `types` has the type of each known option's fact. `short`: also `-tp 4`. `bare`: a switch takes no value.
    """
    gatherer = _Flags(types, short, bare)
    for item in items:
        gatherer.take(item)
    gatherer.finish()
    return Gathered(tuple(gatherer.settings), gatherer.unknown, gatherer.unseen, gatherer.model)


class _Flags:
    def __init__(self, types: Mapping[str, str], short: bool, bare: bool) -> None:
        self.types, self.short, self.bare = types, short, bare
        self.settings: list[Setting] = []
        self.unknown: dict[str, str] = {}
        self.unseen: str | None = None
        self.model: str | None = None
        self.option = ""
        self.key: str | None = None
        self.values: list[str] = []
        self.place: Location | None = None
        self.doubt: str | None = None

    def take(self, item: Item) -> None:
        if isinstance(item, Maybe):
            self._maybe(item)
        elif isinstance(item, Unseen):
            self._unseen(item)
        elif (text := item.text) is not None:
            self._known(item, text)
        else:
            self._partly_known(item)

    def finish(self) -> None:
        """Ends the flag that is being read."""
        if self.key is not None:
            if self.doubt is not None:
                self.unknown[self.key] = self.doubt
            else:
                self.unknown.pop(self.key, None)
                self.settings.append(option_setting(self.option, self.values, self.place))
        self.key, self.values, self.place, self.doubt = None, [], None, None

    def _start(self, word: str, span: Span) -> None:
        self.finish()
        flag, equals, value = word.partition("=")
        self.option, self.key = flag, flag.lstrip("-").replace("-", "_")
        self.values = [value] if equals else []
        self.place = location_of(span)

    def _known(self, word: Field, text: str) -> None:
        if _FLAG.match(text) or (self.short and _SHORT_FLAG.fullmatch(text)):
            self._start(text, word.span)
        elif self.short and re.match(_KEY, text):
            self.finish()  # an override
        elif self.key is not None:
            self.values.append(text)
            self._extend(word.span)

    def _extend(self, span: Span) -> None:
        end = location_of(span)
        place = self.place
        if place is not None and end.file == place.file and place[3:5] <= end[1:3]:
            self.place = place._replace(end_line=end.end_line, end_column=end.end_column)

    def _partly_known(self, word: Field) -> None:
        prefix, reason = word.prefix, reason_of(word.parts)
        if _FLAG.match(prefix) and "=" in prefix:
            self._start(prefix, word.span)
            self.doubt = reason
        elif prefix.startswith("--") or (not prefix and not self._wants_value() and not _is_path(word)):
            self.finish()
            self.unseen = reason
        else:
            self._doubt(reason, word.span)

    def _unseen(self, item: Unseen) -> None:
        known = self.key is not None and (self.key in self.types or re.search(_SEVERAL, self.key) is not None)
        if (item.scalar or known) and self._wants_value() and not self._is_for_flags(item):
            if self._has_enough():
                self.unseen = item.reason
            self._doubt(item.reason, item.span)
        elif _is_of_model(item):
            self.finish()
            self.model = item.reason
        else:
            self.finish()
            self.unseen = item.reason

    def _doubt(self, reason: str, span: Span) -> None:
        if self.key is not None and self.doubt is None:
            self.doubt = reason
            self.values.append("")
            self._extend(span)

    def _is_for_flags(self, item: Unseen) -> bool:
        """Whether a variable's name suggests that it holds flags: `$EXTRA_ARGS`."""
        written = _written(item)
        return (
            re.search(_ARGUMENTS, written) is not None and re.search(_ONE_VALUE, written) is None and len(written) < 80
        )

    def _wants_value(self) -> bool:
        """Whether an unknown word here is probably the flag's value."""
        if self.key is None:
            return False
        kind = self.types.get(self.key, "")
        if self.bare and (kind == "bool" or (not kind and re.match(_BARE_FLAG, self.key))):
            return False
        return not self.values or kind in ("sizes", "floats", "comm") or re.search(_SEVERAL, self.key) is not None

    def _has_enough(self) -> bool:
        """Whether the flag's values are complete, so that an unknown word here may also hold options."""
        key = self.key or ""
        enough = None if re.search(_SEVERAL, key) else _ENOUGH.get(self.types.get(key, ""))
        return enough is not None and self.doubt is None and len(self.values) >= enough

    def _maybe(self, item: Maybe) -> None:
        gathered = []
        wants_value = self._wants_value()
        for option in (opened for given in item.options for opened in _opened(given, wants_value)):
            first = next((place for place, word in enumerate(option) if _starts_flag(word)), len(option))
            if wants_value and _begins_with_value(option):
                self._doubt(item.reason, item.span)
            elif any(
                isinstance(word, Unseen) or (isinstance(word, Field) and word.text is None and not word.prefix)
                for word in option[:first]
            ):
                self.unseen = item.reason
            gathered.append(flags_of(option[first:], self.types, short=self.short, bare=self.bare))
        self.finish()
        self.unseen = self.unseen or next((one.unseen for one in gathered if one.unseen), None)
        self.model = self.model or next((one.model for one in gathered if one.model), None)
        for key in dict.fromkeys(setting.key for one in gathered for setting in one.settings):
            last = [next((s for s in reversed(one.settings) if s.key == key), None) for one in gathered]
            first_setting = last[0]
            if first_setting is not None and all(s is not None and s.value == first_setting.value for s in last):
                self.unknown.pop(key, None)
                self.settings.append(first_setting)
            else:
                self.unknown[key] = item.reason
        for one in gathered:
            self.unknown.update(one.unknown)


def _written(item: Unseen) -> str:
    return item.span[0].data[item.span[1] : item.span[2]].decode("utf-8", "replace")


def _is_of_model(item: Unseen) -> bool:
    """Whether unknown words are the model's options: `${MODEL_ARGS[@]}`, or what `MODEL_ARGS=($(…))` takes in."""
    text, start, _ = item.span
    return re.search(_OF_MODEL, _written(item)) is not None or re.search(_SET_HERE, text.data[:start][-40:]) is not None


def _is_path(word: Field) -> bool:
    """Whether a word whose start isn't known can't be an option: `${DATA}/x.jsonl`."""
    return any(isinstance(part, Lit) and part.text[:1] in ("/", ".") for part in word.parts)


def _starts_flag(item: Item) -> bool:
    return isinstance(item, Maybe) or (isinstance(item, Field) and item.prefix.startswith("--"))


def _opened(items: Items, wants_value: bool) -> list[Items]:
    """The alternatives of a choice that stands where a flag's value is wanted: each may begin with that value."""
    if not wants_value or not items or not isinstance(items[0], Maybe):
        return [items]
    return [opened for option in items[0].options for opened in _opened((*option, *items[1:]), True)]


def _begins_with_value(items: Items) -> bool:
    """Whether the first word may be a value of the preceding flag."""
    return bool(items) and not _starts_flag(items[0])


class Overrides(NamedTuple):
    """Override words as read, `unknown` key -> why, and why further ones may exist."""

    words: Sequence[Word]
    unknown: dict[str, str]
    unseen: str | None


def overrides_of(items: Iterable[Item], naming: Collection[str] = ()) -> Overrides:
    """Overrides (`key=value`) and other words, for the readers of Bridge's, verl's and NeMo-RL's lists.

    Args:
        naming: the options that name what is read besides; where a value of one isn't known, words are unseen.
    """
    words: list[Word] = []
    unknown: dict[str, str] = {}
    unseen: str | None = None
    for item in items:
        if isinstance(item, Unseen):
            unseen = item.reason
        elif isinstance(item, Maybe):
            options = [overrides_of(option, naming) for option in item.options]
            unseen = unseen or next((option.unseen for option in options if option.unseen), None)
            same = set.intersection(*({word.text for word in option.words} for option in options))
            for option in options:
                unknown.update(option.unknown)
                for word in option.words:
                    key = re.match(_KEY, word.text)
                    if word.text in same:
                        unknown.pop(key[2] if key else "", None)
                        words.append(word)
                    elif key:
                        unknown[key[2]] = item.reason
        elif item.text is not None:
            key = re.match(_KEY, item.text)
            if key:
                unknown.pop(key[2], None)
            words.append(Word(item.text, location_of(item.span)))
        else:
            key = re.match(_KEY, item.prefix)
            if key:
                unknown[key[2]] = reason_of(item.parts)
            elif item.prefix.partition("=")[0] in naming or (words and words[-1].text in naming):
                unseen = reason_of(item.parts)
            elif item.prefix.startswith("-") and "=" in item.prefix:
                words.append(Word(item.prefix, location_of(item.span)))  # its value isn't known
            elif not item.prefix.startswith("-") and not (words and words[-1].text.startswith("-")):
                unseen = reason_of(item.parts)
    return Overrides(tuple(words), unknown, unseen)


def flag_names(items: Items) -> set[str]:
    """The names of all flags and overrides that the words may contain."""
    names: set[str] = set()
    for item in items:
        if isinstance(item, Maybe):
            for option in item.options:
                names |= flag_names(option)
        elif isinstance(item, Field):
            text = item.text
            prefix = item.prefix if text is None else text
            if prefix.startswith("--"):
                names.add("--" + prefix[2:].partition("=")[0].replace("-", "_"))
            elif "=" in prefix and (key := re.match(_KEY, prefix)):
                names.add(key[2])
    return names
