"""`hcp check --site`: the site file of `hcp render` serves the check too."""

import json


def _facts(hcp, tmp_path, *words):
    (tmp_path / "site.yaml").write_text('gpus_per_node: 8\narch: sm90\nfacts: {te: "2.14"}\naccount: proj\n')
    done = hcp(
        "show", "--site", "site.yaml", "--format", "json", *words, "--", "--context-parallel-size", "2", cwd=tmp_path
    )
    return {name: fact["value"] for name, fact in json.loads(done.stdout)["facts"].items()}


def test_what_the_site_says_of_the_cluster_is_assumed(hcp, tmp_path):
    facts = _facts(hcp, tmp_path)
    assert (facts["gpus_per_node"], facts["arch"], facts["te"]) == (8, "sm90", "2.14")


def test_an_assumption_by_word_wins_over_the_file(hcp, tmp_path):
    assert _facts(hcp, tmp_path, "--assume", "te=2.19")["te"] == "2.19"


def test_a_site_file_with_an_unknown_key_is_refused(hcp, tmp_path):
    (tmp_path / "site.yaml").write_text("gpus: 8\n")
    done = hcp("check", "--site", "site.yaml", "--", "--context-parallel-size", "2", cwd=tmp_path)
    assert done.returncode == 2 and "gpus: found an unknown key" in done.stderr
