"""What a training job may import: process groups, shards, attention, losses, assert_hcp_active. Needs torch."""
