"""Launches in Kubernetes manifests: what a container starts is followed like a script."""
