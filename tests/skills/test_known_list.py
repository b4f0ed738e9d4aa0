from megatron_hcp.skills.rendered import RENDERERS, RenderedPart


def test_known_faults_are_listed_by_package_with_their_releases():
    found = RENDERERS["known"](RenderedPart(("KNOWN002", "KNOWN003", "KNOWN012"), None))
    assert found == [
        "- Megatron-Bridge: KNOWN012 (>=0.3)",
        "- megatron-core: KNOWN002 (<0.13), KNOWN003 (>=0.18,<0.19)",
    ]
