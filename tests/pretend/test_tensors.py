"""What upstream asks of tensors on the pretended GPU and of room for their copies on the host."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.rows import rows

pytestmark = [pytest.mark.torch]

PROGRAM = """
import sys, torch, torch._dynamo
from megatron_hcp.pretend.stand_ins import device, tensors
device.install()
tensors.install()
weights = torch.empty(4, 4, device="cuda")
print(eval(sys.argv[1]))
"""


def told(expression: str) -> str:
    done = subprocess.run([sys.executable, "-B", "-c", PROGRAM, expression], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


@rows("expression, answer", [
    ("bool(torch.all(weights == weights * 1))", "True"),
    ("bool((weights > 0).all())", "True"),
    ("bool(torch.any(weights != weights * 1))", "False"),
    ("bool(torch.all(torch.tensor([1, 0], device='cuda')))", "False"),
])  # fmt: skip
def test_a_check_of_all_unknown_values_holds_and_of_known_ones_is_computed(expression: str, answer: str) -> None:
    assert told(expression) == answer


@rows("expression, answer", [
    ("torch.empty(1 << 40, device='cpu', pin_memory=True).device", "cpu"),
    ("torch.empty(1 << 40, pin_memory=True).copy_(torch.empty(1 << 40, device='cuda')).is_cuda", "False"),
    ("torch.empty(1 << 40, device='cuda').copy_(torch.empty(1 << 40, pin_memory=True)).is_cuda", "True"),
    ("torch.ones(4, pin_memory=True).sum().item()", "4.0"),
])  # fmt: skip
def test_pinned_room_for_a_large_copy_takes_no_memory_and_lies_on_the_host(expression: str, answer: str) -> None:
    assert told(expression) == answer
