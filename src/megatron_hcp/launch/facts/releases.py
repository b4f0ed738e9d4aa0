"""The releases to ask a rule about if a launch doesn't state its own, oldest first.

The last of each minor version; of packages that mend faults in a patch release, more.
"""

TRANSFORMER_ENGINE = (
    "1.12.0", "1.13.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0",
    "2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0", "2.16.0", "2.17.1", "2.18.0", "2.19.0", "2.20.2",
)  # fmt: skip
MEGATRON_CORE = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2")
RELEASES = {
    "te": TRANSFORMER_ENGINE,
    "mcore": MEGATRON_CORE,
    "bridge": ("0.2.2", "0.3.1", "0.4.2", "0.5.0", "0.5.1", "0.6.2"),
    "verl": ("0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1"),
    "nemo_rl": ("0.3.1", "0.4.0", "0.5.0", "0.6.0", "0.7.0"),
    "ms_swift": (
        "3.9.3", "3.10.3", "3.11.1", "3.11.3", "3.12.2", "3.12.6", "4.0.4", "4.1.3", "4.2.3", "4.3.2", "4.4.0", "4.4.3",
        "4.5.2",
    ),
    "slime": ("0.2.2", "0.2.3", "0.2.4", "0.3.0", "0.3.1"),
    "miles": ("0.1.0",),
}  # fmt: skip
"""By the fact that names the version."""
