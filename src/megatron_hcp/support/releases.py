"""The releases to query if a launch doesn't state its own: the last of each minor version."""

TRANSFORMER_ENGINE = (
    "1.12.0", "1.13.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0",
    "2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0", "2.16.0", "2.17.1", "2.18.0", "2.19.0", "2.20.2",
)  # fmt: skip
MEGATRON_CORE = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2")
RELEASES = {"te": TRANSFORMER_ENGINE, "mcore": MEGATRON_CORE}
"""By the fact that names the version, oldest first."""
