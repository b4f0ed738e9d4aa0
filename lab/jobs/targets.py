"""Holds manifests against the schemas of their resources: `python lab jobs/targets NAME=DIR[@COMMIT] ... [--write]`.

NAME=DIR: trainer, jobset and kuberay, checkouts of kubeflow/trainer, kubernetes-sigs/jobset and ray-project/kuberay.
Every launch of tests/support/target_launches.py must give objects that the whole schemas accept, without a field that
they do not know. --write keeps the part of the schemas that these objects use, with the commits, for the tests that
have no checkout.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from jobs.crds import closed, restricted, schema_of
from program import ROOT, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from support.target_launches import LAUNCHES

KEPT = ROOT / "tests" / "render" / "kubernetes" / "schemas.json"
_FILES = {
    "trainer": [f"manifests/base/crds/trainer.kubeflow.org_{kind}.yaml" for kind in ("trainjobs", "trainingruntimes")],
    "jobset": ["config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"],
    "kuberay": ["ray-operator/config/crd/bases/ray.io_rayjobs.yaml"],
}


def _rendered(folder: Path, target: str, words: tuple[str, ...], name: str, text: str) -> list[Any]:
    (folder / name).write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "megatron_hcp", "render", name, "--target", target, *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{target} {name}: {done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


def _head(folder: str) -> str:
    argv = ["git", "-C", folder, "rev-parse", "HEAD"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--write", action="store_true", help=f"write {KEPT.name}")
    options = parser.parse_args()
    named = {text.partition("=")[0]: text.partition("=")[2].partition("@") for text in options.checkouts}
    places = {name: folder for name, (folder, _, _) in named.items()}
    schemas = dict(schema_of(Path(places[name]) / file) for name, files in _FILES.items() for file in files)
    schemas = {name: closed(schema) for name, schema in schemas.items()}
    objects: dict[str, list[Any]] = {name: [] for name in schemas}
    bad = 0
    with tempfile.TemporaryDirectory(prefix="hcp-targets-") as folder:
        for launch in LAUNCHES:
            for each in _rendered(Path(folder), *launch):
                group, _, version = each["apiVersion"].rpartition("/")
                name = f"{each['kind']}.{group}/{version}"
                if name not in schemas:
                    continue
                objects[name].append(each)
                errors = list(jsonschema.Draft202012Validator(schemas[name]).iter_errors(each))
                bad += len(errors)
                print(f"{launch[0]} {launch[2]}: {each['kind']}: {len(errors)} errors")
                for error in errors:
                    print(f"    {error.json_path}: {error.message[:200]}")
    if options.write:
        commits = {name: commit or _head(folder) for name, (folder, _, commit) in named.items()}
        kept = {name: restricted(schema, objects[name]) for name, schema in schemas.items()}
        KEPT.write_text(laid_out({"commits": commits, "schemas": kept}, ROW_WIDTH) + "\n", encoding="utf-8")
        print(f"{KEPT.name}: {len(json.dumps(kept)):,} bytes")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
