"""Launches in Kubernetes manifests: a container's command is followed like a script."""
