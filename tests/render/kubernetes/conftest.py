"""Manifests that `hcp render` writes, as objects."""

import pytest
import yaml

from support.target_launches import LAUNCHES


@pytest.fixture
def manifest(hcp, tmp_path):
    """`manifest(target, *words, name=, text=)`: the objects of a rendered manifest, by kind."""

    def render(target, *words, name="train.sh", text="", code=0):
        (tmp_path / name).write_text(text)
        done = hcp("render", name, "--target", target, *words, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}

    return render


@pytest.fixture(params=LAUNCHES, ids=[f"{target} of {name}" for target, _, name, _ in LAUNCHES])
def drawn(request, manifest):
    target, words, name, text = request.param
    return manifest(target, *words, name=name, text=text)
