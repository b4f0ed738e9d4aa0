"""`hcp dryrun`: has upstream's own program run, without a GPU.

Design. Rules know what someone has read, and validators what upstream checks at its start; a fault of a release's own
code shows itself when that code runs. So it runs: upstream's unmodified `pretrain_gpt.py`, up to the end of the first
backward pass, as one rank of the launch's world. This room asks and reports; it imports no torch:

* `words`: the launch's words as upstream gets them. Data, tokenizer, checkpoints and folders for logs are replaced or
  left out, and each such word is listed;
* `ranks`: the world's size, and one rank for each role (pipeline stage, first and last CP and TP rank);
* `sandbox`: the process of upstream's code: no network, nothing writable but a temporary folder, limits of time and
  memory. What of it the system doesn't allow is reported;
* `ask`: starts `python -m megatron_hcp.pretend`, which imports torch and upstream and puts the stand-ins in place, and
  reads its answers. Imports are paid once, ranks are forks;
* `report`: `hcp.dryrun/1`.

Verdicts. `refused`: upstream's own code raised, and no stand-in, made-up value or replaced word takes part in it.
`done`: every rank asked about came to the stage that was asked for. Anything else is `undecided`, with what is missing:
never a failure.

`small` and `step` do the same for `hcp verify --launch --engine upstream`: a launch made small, whose step upstream's
program computes in float64, with context parallelism and without (`megatron_hcp.pretend.real`).

It is the only room that has upstream's code executed, and only `hcp dryrun`, `hcp check --dryrun`,
`hcp plan --measure` and `hcp verify --launch --engine upstream` call it.
"""
