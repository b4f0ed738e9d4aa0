"""Launches that together use every field of the manifests that `hcp render` writes."""

from __future__ import annotations

from support.rendering import VERL_WORDS

MEGATRON = "--context-parallel-size 2 --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 8192"
_SCRIPT = f"""\
#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8 --time=4:00:00 --partition=batch --mem=100G --cpus-per-task=4 --signal=B:USR1@900
srun --container-image=nvcr.io#nvidia/nemo:25.09 --container-mounts=/lustre:/lustre,/data:/data:ro \\
    --container-workdir=/opt/megatron python pretrain_gpt.py {MEGATRON} --save /lustre/ck/$SLURM_JOB_NAME
"""
_POD = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: llama}}
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          nodeSelector: {{gpu: h100}}
          tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
          imagePullSecrets: [{{name: registry}}]
          hostNetwork: true
          volumes: [{{name: ck, persistentVolumeClaim: {{claimName: ck}}}}]
          containers:
          - name: pytorch
            image: nvcr.io/nvidia/nemo:25.09
            command: [torchrun, pretrain_gpt.py, {", ".join(f'"{word}"' for word in MEGATRON.split())}]
            env: [{{name: TOKEN, valueFrom: {{secretKeyRef: {{name: hub, key: token}}}}}}]
            envFrom: [{{configMapRef: {{name: site}}}}]
            imagePullPolicy: Always
            securityContext: {{capabilities: {{add: [IPC_LOCK]}}}}
            resources: {{limits: {{nvidia.com/gpu: 8, rdma/ib: 8}}, requests: {{memory: 1Ti}}}}
            volumeMounts: [{{name: ck, mountPath: /ck, subPath: llama}}]
"""
_VERL = f"python3 -m verl.trainer.main_ppo {' '.join(VERL_WORDS)}\n"
_SIZES = ("--nodes", "2", "--gpus-per-node", "8")
_IMAGE = ("--container-image", "verl:x")
LAUNCHES: tuple[tuple[str, tuple[str, ...], str, str], ...] = (  # (target, words, file, the launch's text)
    *((name, ("--logs", "/lustre/logs", "--requeue", "2"), "train.sh", _SCRIPT) for name in ("jobset", "trainjob")),
    *((name, ("--logs", "/ck/logs", "--start", "ft_launcher"), "job.yaml", _POD) for name in ("jobset", "trainjob")),
    ("rayjob", (*_SIZES, *_IMAGE, "--mounts", "ck:/ck", "--time", "60", "--requeue", "1"), "train.sh", _VERL),
)
