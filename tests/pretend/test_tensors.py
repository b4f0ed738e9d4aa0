"""What upstream asks of tensors on the pretended GPU and of room for their copies on the host."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.rows import rows

pytestmark = [pytest.mark.torch]

PROGRAM = """
import sys, torch, torch._dynamo
from megatron_hcp.pretend.stand_ins import device, sized, tensors
device.install()
tensors.install()
sized.install()
weights = torch.empty(4, 4, device="cuda")
print(eval(sys.argv[1]))
"""


def told(expression: str) -> str:
    done = subprocess.run([sys.executable, "-B", "-c", PROGRAM, expression], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


@rows("expression, answer", [
    ("bool(torch.all(weights == weights * 1))", "True"),
    ("bool((weights > 0).all())", "True"),
    ("torch.linspace(0, 4, torch.tensor([3, 9]).cuda()[0]).tolist()", "[0.0, 2.0, 4.0]"),
    ("torch.arange(torch.tensor(2).cuda()).tolist()", "[0, 1]"),
    ("[len(part) for part in weights.split(list(torch.tensor([1, 3]).cuda()))]", "[1, 3]"),
    ("tuple(weights.repeat(torch.tensor(2).cuda(), 1).shape)", "(8, 4)"),
    ("tuple(weights[0].expand(torch.tensor(3).cuda(), 4).shape)", "(3, 4)"),
    ("torch.cuda.Stream.priority_range()[1] < 0", "True"),
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
    ("torch.arange(1 << 19, pin_memory=True)[-1].item()", str((1 << 19) - 1)),
])  # fmt: skip
def test_pinned_room_for_a_large_copy_takes_no_memory_and_lies_on_the_host(expression: str, answer: str) -> None:
    assert told(expression) == answer


@rows("expression, answer", [
    ("[h := torch.zeros(2), d := h.cuda(), d.__setitem__(0, 5.0), h.__setitem__(1, 7.0), h.tolist(), d.tolist()][-2:]",
     "[[0.0, 7.0], [5.0, 0.0]]"),
    ("[h := torch.zeros(2), d := torch.as_tensor(h, device='cuda'), h.fill_(7.0), d.tolist()][-1]", "[0.0, 0.0]"),
    ("torch.as_tensor(data=torch.arange(3), device='cuda').tolist()", "[0, 1, 2]"),
    ("[d := torch.zeros(2, device='cuda'), d.to('cuda').fill_(5.0), d.tolist()][-1]", "[5.0, 5.0]"),
    ("[d := torch.zeros(3, device='cuda'), d.__setitem__(1, 5.0), d.tolist()][-1]", "[0.0, 5.0, 0.0]"),
    ("[d := torch.zeros(3, device='cuda'), d.__setitem__(1, weights[0, 0]), hasattr(d, '_host')][-1]", "False"),
    ("[int(one) for one in torch.arange(3, device='cuda')]", "[0, 1, 2]"),
])  # fmt: skip
def test_values_that_follow_from_the_host_are_those_of_a_copy_on_the_gpu(expression: str, answer: str) -> None:
    assert told(expression) == answer


@rows("expression, answer", [
    ("torch.nn.Linear(2, 2).to(3).weight.device", "cuda:0"),
    ("torch.nn.Linear(2, 2).to(3, torch.float64).weight.dtype", "torch.float64"),
    ("torch.nn.Linear(2, 2).to(dtype=torch.float64).weight.device", "cpu"),
    ("torch.nn.Linear(2, 2).to(torch.float64).weight.dtype", "torch.float64"),
])  # fmt: skip
def test_a_module_moves_to_a_gpu_that_is_named_by_its_number(expression: str, answer: str) -> None:
    assert told(expression) == answer


def test_a_node_has_as_many_gpus_as_the_launch_starts_and_no_fewer_than_eight() -> None:
    many = "device.install(16) or torch.cuda.device_count()"
    assert (told(many), told("torch.cuda.device_count()")) == ("16", "8")


MASK = "torch.tensor([False, True, True], device='cuda')"


@rows("expression, answer", [
    (f"{MASK}.nonzero().tolist()", "[[1], [2]]"),
    (f"[one.tolist() for one in {MASK}.nonzero(as_tuple=True)]", "[[1, 2]]"),
    (f"[one.tolist() for one in torch.nonzero({MASK}, as_tuple=True)]", "[[1, 2]]"),
    (f"[one.tolist() for one in torch.where({MASK})]", "[[1, 2]]"),
    (f"torch.where({MASK}, torch.ones(3, device='cuda'), torch.zeros(3, device='cuda')).tolist()", "[0.0, 1.0, 1.0]"),
    (f"torch.arange(3, device='cuda')[{MASK}].tolist()", "[1, 2]"),
    (f"torch.arange(3, device='cuda').masked_select({MASK}).tolist()", "[1, 2]"),
    (f"torch.masked_select(torch.ones(2, 3, device='cuda'), mask={MASK}).tolist()", "[1.0, 1.0, 1.0, 1.0]"),
    (f"torch.masked_select(mask={MASK}, input=torch.arange(3, device='cuda')).tolist()", "[1, 2]"),
    (f"torch.nonzero(input={MASK}).tolist()", "[[1], [2]]"),
    (f"torch.where(condition={MASK})[0].tolist()", "[1, 2]"),
    ("[len(one) for one in (weights > 0).nonzero(as_tuple=True)]", "[16, 16]"),
    ("len(torch.masked_select(weights, weights > 0))", "16"),
    ("torch.repeat_interleave(torch.tensor([1, 0, 2], device='cuda')).tolist()", "[0, 2, 2]"),
    ("torch.arange(2, device='cuda').repeat_interleave(torch.tensor([1, 2], device='cuda')).tolist()", "[0, 1, 1]"),
    ("torch.arange(2, device='cuda').repeat_interleave(repeats=torch.tensor([1, 2], device='cuda')).tolist()",
     "[0, 1, 1]"),
    ("torch.nn.functional.pad(torch.ones(2, device='cuda'), [0, torch.tensor(3, device='cuda')]).tolist()",
     "[1.0, 1.0, 0.0, 0.0, 0.0]"),
    ("torch.full((1, torch.tensor(2, device='cuda')), 3, device='cuda').shape", "torch.Size([1, 2])"),
    ("torch.zeros(torch.tensor(2, device='cuda'), 1, device='cuda').tolist()", "[[0.0], [0.0]]"),
    ("torch.ones([2, 1], device='cuda').shape", "torch.Size([2, 1])"),
    ("[len(one) for one in torch.nested.as_nested_tensor([weights[:1], weights], layout=torch.jagged).unbind()]",
     "[1, 4]"),
    ("len(torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged).to('cuda')[1])", "2"),
])  # fmt: skip
def test_a_size_that_follows_from_the_host_is_computed_and_of_an_unknown_mask_all_holds(
    expression: str, answer: str
) -> None:
    assert told(expression) == answer
