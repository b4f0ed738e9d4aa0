"""Rules about what NeMo-RL requires at start-up (issue NVIDIA-NeMo/RL#2783 requests earlier checks)."""
