"""The memory of each phase of reinforcement learning: what is resident when, by framework."""
