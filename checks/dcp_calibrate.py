"""Measures the costs of dynamic-CP plans on this machine, and writes them as hcp.profile/1.

Measures GEMMs and causal attention of one layer at several lengths, forward and backward, and send and receive around
a ring, within a node and across nodes. Run it as the job runs its ranks: one process per rank, with RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; `hcp dcp calibrate` starts it. Exit status: 0 written, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from datetime import timedelta

LENGTHS = {"cuda": "2048,4096,8192,16384,32768", "cpu": "128,256,512,1024"}
MEGABYTES = {"cuda": 64.0, "cpu": 4.0}
WARM_UP, LEAST_RUNS, MOST_RUNS = 2, 3, 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="dcp_calibrate.py", description=__doc__)
    parser.add_argument("--sizes", required=True, help="sizes of the model: JSON, the fields of ModelSizes")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--lengths", default="", help="tokens, separated by commas")
    parser.add_argument("--cp-comm-type", default="p2p")
    parser.add_argument("--inner", type=int, default=1, help="a2a+p2p: ranks of the inner level")
    parser.add_argument("--seconds", type=float, default=2.0, help="maximum seconds for each measurement")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds after which a hanging rank is given up")
    options = parser.parse_args()
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"dcp_calibrate.py: {error}; wanted torch; install it where the job runs", file=sys.stderr)
        return 2
    from megatron_hcp.cost.model_sizes import ModelSizes
    from megatron_hcp.ground.files import write_whole

    fields = json.loads(options.sizes)
    sizes = ModelSizes(**{**fields, "windows": tuple(fields["windows"])})
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=options.timeout))
    try:
        lengths = [int(word) for word in (options.lengths or LENGTHS[device.type]).split(",")]
        measured = Bench(device, sizes, options).measure(lengths)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, measured)
        if dist.get_rank() == 0:
            profile = profile_of(everyone, sizes, options, device)
            write_whole(options.out, json.dumps(profile.as_json(), indent=2) + "\n")
    finally:
        dist.destroy_process_group()
    return 0


class Bench:
    """The measurements of one rank, in seconds."""

    def __init__(self, device, sizes, options):
        import torch

        self.device, self.sizes, self.options = device, sizes, options
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def measure(self, lengths):
        import torch.distributed as dist

        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, socket.gethostname())
        rank = dist.get_rank()
        here = [other for other, name in enumerate(names) if name == names[rank]]
        everywhere = list(range(len(names)))
        megabytes = MEGABYTES[self.device.type]
        rings = {"inside": here} | ({"across": everywhere} if len(set(names)) > 1 else {})
        return {
            "linear": [[tokens, self.linear(tokens)] for tokens in lengths],
            "attention": [[tokens, self.attention(tokens)] for tokens in lengths],
            "rings": {
                name: {"first_byte_s": self.ring(ring, 1024), "s": self.ring(ring, int(megabytes * 2**20)),
                       "bytes": int(megabytes * 2**20), "ranks": len(ring)}
                for name, ring in rings.items()
            },
            "ranks_per_node": len(here),
        }  # fmt: skip

    def linear(self, tokens):
        """One layer's GEMMs, as two that together have its weights."""
        import torch

        hidden, width = self.sizes.hidden_size, layer_width(self.sizes, self.options.tp)
        make = {"device": self.device, "dtype": self.dtype, "requires_grad": True}
        x, up, down = (torch.randn(shape, **make) for shape in ((tokens, hidden), (hidden, width), (width, hidden)))
        return self.seconds(lambda: (x @ up @ down).sum().backward())

    def attention(self, tokens):
        """One layer's causal attention of one sequence."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        heads = max(1, self.sizes.heads // self.options.tp)
        make = {"device": self.device, "dtype": self.dtype, "requires_grad": True}
        q, k = (torch.randn(1, heads, tokens, self.sizes.qk_head_dim, **make) for _ in range(2))
        v = torch.randn(1, heads, tokens, self.sizes.v_head_dim, **make)
        return self.seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward())

    def ring(self, ranks, size):
        """Sends `size` bytes to the next rank of the ring and receives as many from the previous one."""
        import torch
        import torch.distributed as dist

        dist.barrier()  # of all ranks, also of those that are alone on their node
        if len(ranks) == 1:
            return 0.0
        at = ranks.index(dist.get_rank())
        sent, received = (torch.zeros(size, dtype=torch.uint8, device=self.device) for _ in range(2))

        def exchange():
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, sent, ranks[(at + 1) % len(ranks)]),
                    dist.P2POp(dist.irecv, received, ranks[at - 1]),
                ]
            )
            for work in works:
                work.wait()

        return self.seconds(exchange, runs=10)  # as many on each rank: all take part in each

    def seconds(self, work, runs=None):
        """The median time of one call; `runs`: exactly so many, else as many as fit into --seconds."""
        times: list[float] = []
        while len(times) < WARM_UP + (runs or MOST_RUNS):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - start)
            if runs is None and len(times) >= WARM_UP + LEAST_RUNS and sum(times) > self.options.seconds:
                break
        times = sorted(times[WARM_UP:])
        return times[len(times) // 2]

    def wait(self):
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()


def layer_width(sizes, tp):
    """The inner width of two GEMMs that have the weights of one layer on one tensor-parallel rank."""
    weights = sizes.linear_flops / 2 - sizes.hidden_size * sizes.vocab
    return max(1, round(weights / (2 * sizes.hidden_size * sizes.num_layers * tp)))


def profile_of(everyone, sizes, options, device):
    """The profile from all ranks' measurements: the slowest rank's value of each."""
    import torch

    from megatron_hcp.cost.cp_cost import CpTraffic, bytes_per_token, link_of
    from megatron_hcp.cost.profile import Profile, fitted_line, fitted_square

    def slowest(name):
        return [[at[0][0], max(seconds for _, seconds in at)] for at in zip(*(each[name] for each in everyone))]

    linear, attention = slowest("linear"), slowest("attention")
    layers = sizes.num_layers / options.pp
    start_s, token_s = fitted_line(linear)
    square_s = fitted_square(attention)
    head = sizes.hidden_size * sizes.vocab
    with_head = 1 + head / (sizes.linear_flops / 2 - head)
    # Of s * s pairs a window of w leaves 2 * s * w, where it is short: linear work.
    windowed_s = sum(2 * window for window in sizes.windows) * square_s / options.pp
    one = bytes_per_token(sizes.heads, sizes.kv_heads, sizes.qk_head_dim, sizes.v_head_dim, options.tp)
    each = one._replace(kv=one.kv * layers, qo=one.qo * layers)

    def link(name):
        found = [rank["rings"][name] for rank in everyone if name in rank["rings"]]
        step_s = max(ring["first_byte_s"] for ring in found)
        whole = max(ring["s"] for ring in found)
        # On a busy machine the first byte may take as long as all of them: then nothing is taken off.
        seconds = whole - step_s if whole > step_s else whole
        bandwidth = found[0]["bytes"] / seconds if seconds > 0 else float("inf")
        return link_of(each, bandwidth, 3 * layers * step_s), bandwidth

    inside, bandwidth = link("inside")
    across = link("across") if "across" in everyone[0]["rings"] else (inside, float("inf"))
    ranks_per_node = max(1, min(rank["ranks_per_node"] for rank in everyone) // options.tp)
    traffic = CpTraffic(options.cp_comm_type, inside, across[0], ranks_per_node, options.inner)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, one thread"
    return Profile(
        f"{name}, {len(everyone)} processes",
        token_s * layers * with_head + windowed_s,
        square_s * (layers - len(sizes.windows) / options.pp),
        traffic,
        start_s * layers,
        {
            "layer_linear_s": linear, "layer_attention_s": attention, "tp": options.tp, "pp": options.pp,
            "inside_bytes_per_s": bandwidth if bandwidth < float("inf") else None,
            "across_bytes_per_s": across[1] if across[1] < float("inf") else None,
        },
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
