"""Dynamic context parallelism in Megatron-LM, Megatron-Bridge and verl."""
