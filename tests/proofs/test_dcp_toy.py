"""The small model of the checks: what a rank holds, and that packing changes nothing."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.proofs.dcp_step import gradient_alone, objective_of  # noqa: E402
from megatron_hcp.proofs.dcp_toy import ToyModel, draw_corpus, pack  # noqa: E402

pytestmark = pytest.mark.torch

CORPUS = draw_corpus([9, 4, 13, 6])


@pytest.mark.parametrize("cp_size", [1, 2, 4])
def test_the_ranks_of_a_group_hold_every_token_once_with_its_label_and_mask(cp_size: int) -> None:
    seen = []
    for cp_rank in range(cp_size):
        packed = pack(CORPUS, [2, 0, 3], cp_size, cp_rank)
        for row, (sequence, position) in enumerate(
            zip(packed.places.sequence.tolist(), packed.places.position.tolist())
        ):
            if sequence < 0:
                assert not packed.loss_mask[row]
                continue
            sample = [2, 0, 3][sequence]
            tokens = CORPUS.tokens[sample]
            assert packed.tokens[row] == tokens[position]
            assert packed.loss_mask[row] == CORPUS.loss_mask[sample][position]
            if packed.loss_mask[row]:
                assert packed.labels[row] == tokens[position + 1]
            seen.append((sample, position))
    assert sorted(seen) == sorted(
        (sample, position) for sample in (2, 0, 3) for position in range(len(CORPUS.tokens[sample]))
    )


def test_the_last_token_has_no_label_and_every_sequence_has_a_loss() -> None:
    for mask in CORPUS.loss_mask:
        assert mask.any() and not mask[-1]
    assert CORPUS.num_loss_tokens == sum(int(mask.sum()) for mask in CORPUS.loss_mask)


def test_packed_sequences_do_not_see_each_other() -> None:
    model = ToyModel(13)
    together = model(pack(CORPUS, [0, 1, 2, 3], 1, 0), None)
    apart = torch.cat([model(pack(CORPUS, [sample], 1, 0), None) for sample in range(4)])
    assert torch.allclose(together, apart, rtol=0, atol=1e-14)


def test_a_token_of_the_past_is_seen_and_one_of_the_future_is_not() -> None:
    model = ToyModel(13)
    before = model(pack(CORPUS, [2], 1, 0), None)
    changed = draw_corpus([9, 4, 13, 6])
    changed.tokens[2][6] = (changed.tokens[2][6] + 1) % 23
    after = model(pack(changed, [2], 1, 0), None)
    same = (before == after).tolist()
    assert all(same[:5]) and not any(same[5:12])  # row 5 has token 6 as its label


def test_gradients_of_sequences_add_up_for_both_objectives() -> None:
    for objective in ("tokens", "sequences"):
        whole = gradient_alone(CORPUS, [0, 1, 2, 3], objective)
        parts = sum(gradient_alone(CORPUS, [sample], objective) for sample in range(4))
        assert torch.allclose(whole, parts, rtol=1e-12, atol=1e-14)


def test_the_objective_of_sequences_is_not_the_one_of_tokens() -> None:
    losses, mask = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([True, True, True])
    sequence = torch.tensor([0, 0, 1])
    assert objective_of(losses, mask, sequence, "tokens") == 6
    assert objective_of(losses, mask, sequence, "sequences").item() == pytest.approx(2 * 2.718281828**2, rel=1e-6)
