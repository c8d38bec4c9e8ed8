"""The elementary functions where a generic test of the losses does not reach."""

import pytest
import torch

from iou_losses.elementary import unit_scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_power_of_two_is_the_same_when_compiled_or_exported_where_frexp_is_not_used(dtype):
    limits = torch.finfo(dtype)
    powers = torch.exp2(torch.arange(-120, 100, dtype=torch.float64)).to(dtype)
    generator = torch.Generator().manual_seed(0)
    within = powers.unsqueeze(-1) * (1 + torch.rand(len(powers), 50, dtype=dtype, generator=generator))
    sides = torch.cat([powers, powers.nextafter(powers * 0), powers.nextafter(powers * 2), within.flatten()])
    sides = torch.cat([sides, torch.tensor([0, limits.tiny, limits.tiny / 4], dtype=dtype)])

    eager, compiled = unit_scale(sides), torch.compile(unit_scale, backend="eager", fullgraph=True)(sides)

    assert torch.equal(eager, compiled)
    assert torch.equal(eager, torch.exp2(eager.log2().round()))
    normal = sides >= limits.tiny
    assert ((sides * eager)[normal] >= 0.5).all()
    assert ((sides * eager)[normal] < 1).all()
