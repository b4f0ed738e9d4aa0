"""Where skills/, checks/, templates/ and schemas/ are: beside `src` in a checkout, inside the package in a wheel."""

from pathlib import Path


def pack_dir(name: str) -> Path:
    """The folder `name` ("skills", "checks", "templates" or "schemas") of this installation.

    A wheel carries the folders as `megatron_hcp/_pack/<name>`; a checkout has them at its root.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_pack" / name
    if installed.is_dir():
        return installed
    checkout = package.parents[1] / name
    assert checkout.is_dir(), f"neither {installed} nor {checkout} exists"
    return checkout
