"""`hcp completion`: the shell script that completes commands, options, rules, skills and files for bash, zsh and fish.

This is click's own completion with three changes: a word that contains `:` or `=` is completed as a whole, file
names are offered for parameters without a list of values, and no rule is imported.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HCP_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the shell completion script for hcp's commands, options, rules, skills and files.

    \b
    bash   eval "$(hcp completion bash)"      in ~/.bashrc
    zsh    eval "$(hcp completion zsh)"       in ~/.zshrc, after compinit
    fish   hcp completion fish | source       in ~/.config/fish/config.fish
    """
    from megatron_hcp.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "hcp", VARIABLE).source(), nl=False)


def complete_rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The ids of the rules."""
    from megatron_hcp.rules.registry import MODULES

    return _items(MODULES, incomplete.upper())


def complete_skills(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The names of the pack's skills."""
    from megatron_hcp.skills.card import skill_dirs

    return _items((folder.name for folder in skill_dirs()), incomplete)


def complete_steps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The names of the skills or, after `SKILL:`, the steps of that skill."""
    from megatron_hcp.skills.card import load_card, skill_dirs

    skill, colon, _ = incomplete.partition(":")
    if not colon:
        return complete_skills(ctx, param, incomplete)
    steps = (step.id for folder in skill_dirs() if folder.name == skill for step in load_card(folder).verify)
    return _items((f"{skill}:{step}" for step in steps), incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class WholeWords(ShellComplete):
    """Completes to whole words (`--format=json`, not `json`), and to file names where nothing else is known."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        option, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if not items and (equals or not incomplete.startswith("-")):
            return [CompletionItem(incomplete, type="file")]
        if equals and incomplete.startswith("-"):
            return [CompletionItem(f"{option}={item.value}", item.type, item.help) for item in items]
        return items


@add_completion_class
class WholeWordsBash(WholeWords, BashComplete):
    """bash splits words at `:` and `=` before it calls us, so the script passes the whole line."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(HCP_LINE=${COMP_LINE:0:COMP_POINT} HCP_BREAKS=$COMP_WORDBREAKS %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["HCP_LINE"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() else (words[:-1], "".join(words[-1:]))

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        # bash only replaces what follows the last of these characters.
        kept = max((incomplete.rfind(letter) + 1 for letter in os.environ["HCP_BREAKS"] if letter in ":="), default=0)
        items = super().get_completions(args, incomplete)
        return [CompletionItem(item.value[kept:], item.type, item.help) for item in items]


@add_completion_class
class WholeWordsZsh(WholeWords, ZshComplete):
    """zsh, with paths after `--option=`."""

    source_template = ZshComplete.source_template.replace("_path_files -f", "compset -P '*='; _path_files -f")


@add_completion_class
class WholeWordsFish(WholeWords, FishComplete):
    """fish, which passes whole words and accepts paths after `--option=` only as whole words."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        items = super().get_completions(args, incomplete)
        option, equals, start = incomplete.partition("=")
        if not equals or [item.type for item in items] != ["file"]:
            return items
        return [CompletionItem(f"{option}={path}") for path in sorted(glob.glob(glob.escape(start) + "*"))]
