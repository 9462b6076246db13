"""Models of torchvision."""

from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model

__all__ = ["MODELS"]


def _images(rows: int, size: int) -> Tensor:
    return torch.randn(rows, 3, size, size)


def _errors(output: Tensor) -> Tensor:
    return (output - 1).square().mean()


def _made(name: str, **settings: Any) -> nn.Module:
    import torchvision

    module: nn.Module = torchvision.models.get_model(name, weights=None, **settings)
    return module


class Detector(nn.Module):
    """A detector that takes its batch as tensors; a list would be handed to every replica."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Any:
        """Give the losses."""
        truths = [
            {"boxes": box, "labels": label} for box, label in zip(boxes, labels, strict=True)
        ]
        return self.net(list(images), truths)


def _resnet() -> nn.Module:
    import torchvision
    from torchvision.models.resnet import BasicBlock

    module: nn.Module = torchvision.models.ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)
    return module


def _densenet() -> nn.Module:
    import torchvision

    module: nn.Module = torchvision.models.DenseNet(4, (2, 2), 8, num_classes=3)
    return module


def _retinanet() -> nn.Module:
    import torchvision
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU())
    backbone.out_channels = 8  # type: ignore[assignment] # what RetinaNet asks for
    anchors = AnchorGenerator(((16,),), ((1.0,),))
    return Detector(
        torchvision.models.detection.RetinaNet(
            backbone, 2, min_size=32, max_size=32, anchor_generator=anchors
        )
    )


def _faster_rcnn() -> nn.Module:
    import torchvision
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU())
    backbone.out_channels = 8  # type: ignore[assignment] # what FasterRCNN asks for
    return Detector(
        torchvision.models.detection.FasterRCNN(
            backbone,
            2,
            min_size=32,
            max_size=32,
            rpn_anchor_generator=AnchorGenerator(((16,),), ((1.0,),)),
            box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 3, 2),
            rpn_pre_nms_top_n_train=8,
            rpn_post_nms_top_n_train=4,
            # All are taken: which ones would be drawn at random.
            rpn_batch_size_per_image=1000,
            box_batch_size_per_image=1000,
        )
    )


def _summed(output: Any) -> Tensor:
    """Average each loss over the replicas, and add them."""
    return torch.stack([loss.mean() for loss in output.values()]).sum()


def _found(rows: int) -> tuple[Tensor, ...]:
    corner = torch.arange(rows).view(rows, 1, 1)
    boxes = torch.tensor([4.0, 4.0, 24.0, 28.0]) + corner
    return _images(rows, 32), boxes, torch.ones(rows, 1, dtype=torch.long)


MODELS = [
    Model(
        "ResNet", "torchvision", "batch norm", _resnet, lambda rows: (_images(rows, 32),), _errors
    ),
    Model(
        "DenseNet",
        "torchvision",
        "all layers joined",
        _densenet,
        lambda rows: (_images(rows, 32),),
        _errors,
    ),
    Model(
        "GoogLeNet",
        "torchvision",
        "a named tuple of three outputs",
        lambda: _made(
            "googlenet", num_classes=3, init_weights=False, dropout=0.0, dropout_aux=0.0
        ),
        lambda rows: (_images(rows, 32),),
        lambda output: sum(map(_errors, output), torch.zeros(())).mean(),
    ),
    Model(
        "LR-ASPP",
        "torchvision",
        "a dictionary of outputs; squeezed by its own batch",
        lambda: _made("lraspp_mobilenet_v3_large", weights_backbone=None, num_classes=3),
        lambda rows: (_images(rows, 32),),
        lambda output: _errors(output["out"]),
    ),
    Model(
        "Faster R-CNN",
        "torchvision",
        "detection in two stages; a dictionary of losses",
        _faster_rcnn,
        _found,
        _summed,
    ),
    Model("RetinaNet", "torchvision", "detection in one stage", _retinanet, _found, _summed),
]
