"""Launches in YAML: Megatron-LM's MODEL_ARGS, Bridge's ConfigContainer, verl's trainer."""
