"""The config.json of a model in Hugging Face's local cache; nothing is ever fetched."""

from __future__ import annotations

import os
import re

from megatron_hcp.ground.asked import is_there, question
from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_COMMIT = re.compile(r"[\w.-]{1,100}")
_WANTED = "a model's config.json, or the name of a known public model or of one in Hugging Face's cache"


def is_model_name(text: str) -> bool:
    """Whether a text that isn't a path has the form of a Hub name, `OWNER/MODEL`."""
    return _NAME.fullmatch(text) is not None and ".." not in text


def is_cached(name: str) -> bool:
    """Whether the cache has something of a model."""
    return is_there(_folder_of(name))


def _folder_of(name: str) -> str:
    return os.path.join(cache_folder(), f"models--{name.replace('/', '--')}")


def cached_config(name: str) -> str:
    """The path of a cached model's config.json: the snapshot that `refs/main` names, inside the cache's folder.

    Files in a snapshot are links to the model's blobs; a link out of the model's folder isn't followed.

    Raises:
        HcpError: the model isn't in the cache, or its link leaves the folder.
    """
    folder = _folder_of(name)
    reference = file_below(folder, "refs/main", "a commit")
    if not is_there(folder):
        raise _absent(name, folder, "is not in")
    if reference is None:
        raise _absent(name, os.path.join(folder, "refs", "main"), "has no revision main in")
    commit = read_text(reference, "a commit", limit=200).strip()
    if not _COMMIT.fullmatch(commit) or commit in (".", ".."):
        raise HcpError(
            f"{reference} holds {commit[:40]!r}",
            wanted="a commit",
            do="download the model again, or give its config.json",
        )
    path = f"snapshots/{commit}/config.json"
    found = file_below(folder, path, _WANTED)
    if found is None:
        raise _absent(name, os.path.join(folder, path), "has no config.json in")
    return found


@question(lambda: ())
def cache_folder() -> str:
    """Where the Hub's client keeps models: HF_HUB_CACHE, else below HF_HOME, else below the user's cache."""
    if os.environ.get("HF_HUB_CACHE"):
        return os.environ["HF_HUB_CACHE"]
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "huggingface"
    )
    return os.path.join(home, "hub")


def _absent(name: str, looked: str, why: str) -> HcpError:
    return HcpError(
        f"{name} {why} the local cache (looked for {looked})",
        wanted=_WANTED,
        do=f"run `hf download {name} config.json`, or give the file",
    )
