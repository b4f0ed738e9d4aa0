"""Rules on what NeMo-RL's start-up asks for (issue NVIDIA-NeMo/RL#2783 wishes it did so earlier)."""
