"""Megatron-Bridge's recipes by name: what each sets, by release, and launches merged with the recipe that they name."""
