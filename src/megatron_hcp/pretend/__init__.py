"""The child of `hcp dryrun`: pretends GPUs, ranks and kernels.

It runs upstream's program as one rank of a world that does not exist. A machine of the real size is pretended, so that
nothing of the launch is shrunk:

* what is on "cuda" is on torch's meta device, which has shapes and no memory, and says that it is on cuda:0 (`device`,
  `tensors`); what is on the host is real;
* process groups are torch's own fake ones, of any size (`world`);
* Transformer Engine's own Python runs: its constructors, its choice of a backend, its assertions. Only its compiled
  kernels are replaced, by functions that return the right shape (`transformer_engine`);
* other compiled packages are replaced in the same way (`kernels`), and what depends on values (`experts`) or on files
  (`files`, `data`) by the least that lets the program go on.

Each stand-in is a module of `stand_ins` that says what it stands for and what it can't tell (`STANDS_FOR`,
`CANNOT_TELL`). `stages` says how far the program came, `verdict` whether an exception is upstream's own: it is one only
if no stand-in, no made-up value and no replaced word takes part in it. Everything else is "not decided".

`python -m megatron_hcp.pretend` reads a request from standard input and answers with a line of JSON for each rank
(`__main__`). It executes the upstream code that the request names; `megatron_hcp.dryrun` starts it, within its limits.
"""
