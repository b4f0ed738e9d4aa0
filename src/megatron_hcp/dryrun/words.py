"""The launch's words as upstream's program gets them: without its files, and with a list of what was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from megatron_hcp.dryrun import conversations
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.launch.forms.script.arguments import command_words

MODEL = "model"
"""What is replaced where a public model stands for the launch's."""
VOCABULARY = 131072
"""Made-up where the launch's tokenizer decides."""
_DATA = frozenset(
    "data_path train_data_path valid_data_path test_data_path data_args_path per_split_data_args_path blend mock_data "
    "fim_data fim_rate fim_spm_rate fim_split_sample fim_fragment_rate fim_no_prefix fim_prefix_token "
    "fim_middle_token fim_suffix_token fim_pad_token fim_eod_token dataloader_type".split()
)
_TOKENIZER = frozenset(
    "tokenizer_type tokenizer_model vocab_file merge_file tiktoken_pattern tiktoken_num_special_tokens "
    "tiktoken_special_tokens tokenizer_metadata tokenizer_special_tokens tokenizer_hf_use_fast "
    "tokenizer_hf_include_special_tokens hf_tokenizer_path trust_remote_code vocab_extra_ids".split()
)
_LEFT_OUT = frozenset(
    "load pretrained_checkpoint exit_on_missing_checkpoint use_checkpoint_args use_mp_args_from_checkpoint_args "
    "use_tokenizer_model_from_checkpoint_args use_checkpoint_opt_param_scheduler auto_detect_ckpt_format "
    "ckpt_step perform_initialization finetune load_main_params_from_ckpt profile use_pytorch_profiler "
    "non_persistent_local_ckpt_dir non_persistent_global_ckpt_dir non_persistent_ckpt_type "
    "non_persistent_save_interval replication replication_jump replication_factor".split()
)
_MOVED = frozenset("save tensorboard_dir wandb_save_dir data_cache_path profile_dir memory_snapshot_path".split())
"""Their values name folders: each becomes one in the run's temporary folder."""


class Replaced(NamedTuple):
    """The launch's words for one purpose, and those that stand for them."""

    what: str
    was: tuple[str, ...]
    now: tuple[str, ...]


class ProgramWords(NamedTuple):
    """What upstream's program gets, what of it isn't the launch's own, and words whose values only the job knows."""

    words: tuple[str, ...]
    replaced: tuple[Replaced, ...]
    not_known: tuple[str, ...] = ()

    @property
    def not_the_launchs(self) -> tuple[str, ...]:
        """The words of which upstream's message says nothing about the launch."""
        return tuple(word for row in self.replaced for word in row.now) + self.not_known

    @property
    def is_model_stated(self) -> bool:
        """Whether the model is the launch's own, not a public one that its folder's name or its sizes stand for."""
        return all(row.what != MODEL for row in self.replaced)


def words_of(launch: Launch) -> ProgramWords:
    """The words of a Megatron-LM launch.

    Raises:
        HcpError: it is of another framework, or not all its words are known.
    """
    reading = launch.reading
    if launch.dialect != "mlm":
        raise HcpError(
            f"found a launch of {launch.dialect}",
            wanted="one of Megatron-LM, Bridge, slime, verl, ms-swift or NeMo-RL",
            do="see docs/dryrun.md",
        )
    hidden = command_words(reading.items).hidden or reading.unseen
    if hidden:
        raise HcpError(f"a word of the launch is not known: {hidden}", wanted="every word", do="state it with --set")
    settings = reading.settings if reading.form != "args-yaml" else tuple(map(_as_a_shell_gives, reading.settings))
    own, groups = _sorted(settings)
    now = {
        "data": ("--data-path", conversations.NAME) if is_packed(launch) else ("--mock-data",),
        "tokenizer": ("--tokenizer-type", "NullTokenizer"),
        "checkpoint": (),
        "folders": tuple(word for setting in groups["folders"] for word in (_name(setting), setting.key)),
    }
    if not any(setting.key == "vocab_size" for setting in own):
        now["tokenizer"] += ("--vocab-size", str(VOCABULARY))
    rows = [Replaced(what, _written(groups[what]), now[what]) for what in groups]
    words = (*_written(own), *(word for row in rows for word in row.now))
    known = {str(setting.key) for setting in own if setting.key in reading.unknown}
    open_words = tuple(word for setting in own if setting.key in known for word in _written([setting]))
    return ProgramWords(words, tuple(row for row in rows if row.was or row.now), open_words)


def refuse_removed(keys: Iterable[str]) -> None:
    """Overrides that remove a key are not passed on.

    Raises:
        HcpError: there is one.
    """
    for key in keys:
        raise HcpError(f"found ~{visible(key)[:100]}", wanted="no key removed that the run reads", do="leave it out")


def _sorted(settings: Iterable[Setting]) -> tuple[list[Setting], dict[str, list[Setting]]]:
    """The settings that stay, and the others by what they are for."""
    own: list[Setting] = []
    groups: dict[str, list[Setting]] = {"data": [], "tokenizer": [], "checkpoint": [], "folders": []}
    for setting in settings:
        if setting.value is False:
            continue
        for what, keys in (
            ("data", _DATA),
            ("tokenizer", _TOKENIZER),
            ("checkpoint", _LEFT_OUT),
            ("folders", _MOVED),
        ):
            if setting.key in keys:
                groups[what].append(setting)
                break
        else:
            own.append(setting)
    return own, groups


def _as_a_shell_gives(setting: Setting) -> Setting:
    """Upstream's runner of MODEL_ARGS has a shell read them, for which a layout's bars are escaped."""
    if setting.key != "pipeline_model_parallel_layout" or not isinstance(setting.value, list):
        return setting
    return setting._replace(value=[str(value).replace("\\", "") for value in setting.value])


def _name(setting: Setting) -> str:
    return setting.written or "--" + setting.key.replace("_", "-")


def _written(settings: Sequence[Setting]) -> tuple[str, ...]:
    words: list[str] = []
    for setting in settings:
        values = setting.value if isinstance(setting.value, list) else [setting.value]
        words += [_name(setting), *(str(value) for value in values if value is not True and value is not None)]
    return tuple(words)


def is_packed(launch: Launch) -> bool:
    """Whether the launch trains on packed conversations, whose data has no mock."""
    return any(setting.key == "sft" and setting.value is not False for setting in launch.reading.settings)
