"""torchvision's operators return the same results on a simulated device as on the CPU."""

import pytest
import torch


def boxes(count):
    """Draw boxes. Many of them overlap."""
    corners = torch.rand(count, 2)
    return torch.cat([corners, corners + 0.3], 1)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_nms_equals_the_cpu(topology, count):
    from torchvision.ops import nms

    torch.manual_seed(0)
    found, scores = boxes(count), torch.rand(count)
    device = topology.device(1)
    kept = nms(found.to(device), scores.to(device), 0.5)
    assert kept.device == device
    assert kept.tolist() == nms(found, scores, 0.5).tolist()


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"])
def test_roi_pooling_and_its_gradients_equal_the_cpu(topology, name):
    import torchvision

    torch.manual_seed(0)
    rois = torch.cat([torch.arange(2.0).repeat(3)[:, None], boxes(6) * 8], 1)
    answers = []
    for device in (topology.device(1), torch.device("cpu")):
        torch.manual_seed(1)
        x = torch.randn(2, 8, 9, 9).to(device).requires_grad_()
        pooled = getattr(torchvision.ops, name)(x, rois.to(device), 2)
        pooled.square().sum().backward()
        assert pooled.device == x.grad.device == device
        answers.append((pooled.detach().cpu(), x.grad.cpu()))
    assert all(map(torch.equal, *answers))
    assert answers[0][1].abs().sum() > 0
