"""How launches are written: words, YAML, scripts, Kubernetes manifests. No form knows a framework."""
