"""What a repository states once: `.hcp.yaml`, the baseline, its launches."""
