"""Options of Megatron-LM's command line without a script around them; those of frameworks on top of it, too."""

from __future__ import annotations

from megatron_hcp.launch.dialects.mlm.elsewhere import taken_from_elsewhere
from megatron_hcp.launch.fact import Acceptance, Dialect, Reading
from megatron_hcp.launch.forms.words.settings import WordList, settings_of_flags


def read_options(
    dialect: Dialect,
    listed: WordList,
    target: str,
    *,
    text: str | None = None,
    acceptances: tuple[Acceptance, ...] = (),
) -> Reading:
    """The reading of a bare command line."""
    settings = tuple(settings_of_flags(listed.words))
    elsewhere, unseen = taken_from_elsewhere(settings)
    return Reading(
        dialect=dialect,
        target=target,
        form="args",
        settings=settings,
        unknown=elsewhere,
        unseen=unseen,
        text=text,
        acceptances=acceptances,
    )
