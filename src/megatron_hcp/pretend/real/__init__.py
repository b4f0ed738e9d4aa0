"""The child of `hcp verify --launch --engine upstream`: a step of upstream's program, computed, with and without CP.

Here nothing is made up. Upstream's own program builds a small model, reads its data and its batch, computes the loss
and its gradients and reduces them over CP processes that talk through gloo; then the same runs in one process. All of
it is float64 on the CPU:

* `cpu`: what is asked to be on "cuda" is on the CPU, and torch.cuda answers as on an H100;
* `kernels`: Transformer Engine's linear layers and norms, computed by torch. Its attention is `proofs.te_cpu`: its own
  Python over kernels for the CPU;
* `rank`: one process, from the program's start to the optimizer's step: it notes losses, each weight's gradient and
  what each module gives for each token;
* `compare`: the two sides, and where they differ first.

`python -m megatron_hcp.pretend.real` reads a request from standard input and answers with a line of JSON for each pair
of runs. It executes the upstream code that the request names; `megatron_hcp.dryrun` starts it, within its limits.
"""
