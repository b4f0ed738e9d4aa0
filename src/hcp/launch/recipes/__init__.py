"""Megatron-Bridge's recipes by name: what each sets, by release, and a launch with the recipe that it names."""
