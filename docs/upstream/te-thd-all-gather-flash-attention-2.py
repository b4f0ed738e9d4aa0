"""The keys that FlashAttention 2 reads for packed data with all_gather (`te-thd-all-gather-flash-attention-2.py`).

The boundaries are computed as in Transformer Engine 2.18 to 2.20.2, AttnFuncWithCPAndKVAllGather.forward, with a causal
mask and no padding. FlashAttention 2's varlen functions read sequence i of the keys at
cu_seqlens_k[i]:cu_seqlens_k[i + 1]. Exit status 1 means that it reads rows of other sequences.
"""

import sys

import torch

CP_SIZE, LENGTHS = 2, (16, 32, 8)


def main() -> int:
    lengths = torch.tensor(LENGTHS)
    places = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])  # cu_seqlens_kv_padded
    chunks = lengths // (2 * CP_SIZE)  # padded_chunk_sizes_kv
    wrong = 0
    for rank in range(CP_SIZE):
        for step, chunk in enumerate((rank, 2 * CP_SIZE - rank - 1)):  # local_seq_chunk_ids
            visible = torch.minimum(lengths, chunks * (chunk + 1))
            cu_seqlens_k = torch.cat(
                [torch.zeros(1, dtype=torch.long), visible.cumsum(0)]
            )  # thd_cu_seqlens_kv_per_step
            for sequence in range(len(LENGTHS)):
                read = range(int(cu_seqlens_k[sequence]), int(cu_seqlens_k[sequence + 1]))
                meant = range(int(places[sequence]), int(places[sequence]) + int(visible[sequence]))
                wrong += read != meant
                mark = "" if read == meant else "  <- rows of another sequence"
                print(f"rank {rank} step {step} sequence {sequence}: reads {read}, expected {meant}{mark}")
    print(f"{wrong} of {2 * CP_SIZE * len(LENGTHS)} reads get the wrong rows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
