"""Jobs as objects of Kubernetes: a JobSet, Kubeflow's TrainJob, KubeRay's RayJob."""
