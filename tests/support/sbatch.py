"""A batch script as people write them: directives, what surrounds the training, and its command."""

HEAD = """\
#!/bin/bash
#SBATCH --account=proj
#SBATCH -p batch
#SBATCH -N 4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=h100:8
#SBATCH --exclude=n7,n8
#SBATCH --cpus-per-task=14
#SBATCH --time=04:00:00
#SBATCH --array=0-9%1
#SBATCH --signal=TERM@900
#SBATCH --output=logs/%x-%A_%a.log
#SBATCH --comment=long-context
#SBATCH --mail-type=FAIL
#SBATCH --exclusive
"""
BODY = """\
module purge
module load cuda/12.8 nccl
source /envs/train/bin/activate
cd /opt/megatron-lm
export HF_HOME=/shared/hf NCCL_IB_HCA=mlx5
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export MASTER_ADDR=$(hostname)
export BUILD=$(git rev-parse HEAD)
ulimit -n 65536
pip install -e .
srun --mpi=pmix --container-image=nvcr.io#nvidia/nemo:25.09 --container-mounts=/shared,/opt:/opt --quiet \\
    python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --context-parallel-size 2 \\
    --seq-length 8192 --exit-signal-handler
"""
