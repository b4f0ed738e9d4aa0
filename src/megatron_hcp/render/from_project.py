"""What a job takes from the repository's `.hcp.yaml`, which need not be where it runs."""

from __future__ import annotations

from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.render.from_launch import Stated
from megatron_hcp.render.site import ASSUMABLE


def with_project(stated: Stated, launch: Launch) -> Stated:
    """The same, with the facts of `.hcp.yaml` that the launch uses below all that the launch says.

    Those of the cluster become settings of the job; the job's own check gets the others by name.
    """
    used = {name: fact for name, fact in launch.facts.items() if fact.origin == "project" and fact.value is not None}
    cluster = {name: used[name].value for name in ASSUMABLE if name in used and name not in stated.site}
    facts = {name: shown_value(fact.value) for name, fact in used.items() if name not in ASSUMABLE}
    places = {name: f"{fact.location.file}:{fact.location.line}" for name, fact in used.items() if fact.location}
    origins = {name if name in cluster else f"facts.{name}": place for name, place in places.items()}
    site = {**cluster, **({"facts": facts} if facts else {}), **stated.site}
    return stated._replace(site=site, origins={**origins, **stated.origins})
