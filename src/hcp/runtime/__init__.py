"""The only folder that imports torch: process groups, shards, reference attention, losses, the megatron adapter."""
