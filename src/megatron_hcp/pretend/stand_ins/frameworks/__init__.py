"""What frameworks above Megatron-LM need: packages that they only import, clusters, rollouts."""
