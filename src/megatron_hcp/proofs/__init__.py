"""The harness of checks/: worker processes, comparison, stand-ins, the adapter to megatron-core. Needs torch."""
