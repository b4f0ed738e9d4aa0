"""Transformer Engine's own context-parallel attention on a CPU: its Python code, with stand-ins for compiled parts.

The unmodified wheels of 2.1 to 2.20.2 are imported, and `attn_forward_func_with_cp` runs on gloo processes, forward and
backward, in float64. So every collective, reordering, correction and refusal is upstream's; only what a kernel computes
is not.

| upstream | here | why it may |
|---|---|---|
| `fused_attn_fwd`, `fused_attn_bwd` (cuDNN) | cudnn.py | plain attention of the block, by the documented arguments |
| `_flash_attn_fwd`, `_varlen_fwd`, `_fwd_v3`, … | flash.py | the same; 2 has no `seqused`, 3 has |
| nine `thd_*` kernels of `transformer_engine_torch` | thd.py | they move and add rows; tested against `core.shards` |
| the rest of `transformer_engine_torch` | absent.py | enumerations; any other function raises |
| triton, onnx, onnxscript, pydantic | absent.py | only imported: nothing here calls them |
| `torch.cuda` streams, events, capability | cuda.py | on a CPU every call is finished when it returns |
| requests of the ring | `load.OneWait` | waited for twice: NCCL allows it, Gloo would not return |
| versions of cuDNN, GPU, FlashAttention | load.py, choose.py | 9.21, an H100, 2.7.4 or 3.0: what the case asks for |

load.py imports a release, case.py has the matrix and the right answers, execute.py runs cases, choose.py asks the
release's own choice of the backend, lab/lib/te_record.py writes down what all
releases do. None of it covers: real kernels
and their precision, streams and missing waits, NCCL, FP8, biases, dropout, FlashAttention 4, cross-attention, CUDA
graphs. A new release may need a small repair here; a missing stand-in is reported by name.
"""
