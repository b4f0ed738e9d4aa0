"""What a training job may import: process groups, shards, attention, losses and assert_hcp_active. Needs torch."""
