"""Image and video models from the package torchvision."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.models.model import Model, draw_images, squared_error

__all__ = ["MODELS"]


def _define(
    name: str,
    covers: str,
    build: Callable[[], nn.Module],
    inputs: Callable[[int], tuple[Any, ...]] = lambda rows: (draw_images(rows, 32),),
    loss: Callable[[Any], Tensor] = squared_error,
) -> Model:
    return Model(name, "torchvision", covers, build, inputs, loss)


class Detector(nn.Module):
    """A detector that takes tensors. DataParallel would not split lists of single images."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Any:
        """Return the detector's losses, keyed by name."""
        truths = [
            {"boxes": box, "labels": label} for box, label in zip(boxes, labels, strict=True)
        ]
        return self.net(list(images), truths)


def _build(function: str, **settings: Any) -> nn.Module:
    """Return the model that a function or class of torchvision makes from ``settings``."""
    import torchvision

    module: nn.Module = getattr(torchvision.models, function)(**settings)
    return module


def _build_resnet() -> nn.Module:
    from torchvision.models.resnet import BasicBlock

    return _build("ResNet", block=BasicBlock, layers=[1, 1, 1, 1], num_classes=3)


def _build_r3d() -> nn.Module:
    from torchvision.models.video import resnet

    module: nn.Module = resnet.VideoResNet(
        resnet.BasicBlock, [resnet.Conv3DSimple] * 4, [1, 1, 1, 1], resnet.BasicStem, num_classes=3
    )
    return module


def _build_raft() -> nn.Module:
    from torchvision.models.optical_flow import raft

    module: nn.Module = raft._raft(
        feature_encoder_layers=(8, 8, 8, 8, 16),
        feature_encoder_block=raft.BottleneckBlock,
        feature_encoder_norm_layer=nn.InstanceNorm2d,
        context_encoder_layers=(8, 8, 8, 8, 16),
        context_encoder_block=raft.BottleneckBlock,
        context_encoder_norm_layer=nn.BatchNorm2d,
        corr_block_num_levels=2,
        corr_block_radius=1,
        motion_encoder_corr_layers=(8,),
        motion_encoder_flow_layers=(8, 8),
        motion_encoder_out_channels=8,
        recurrent_block_hidden_state_size=8,
        recurrent_block_kernel_size=(3,),
        recurrent_block_padding=(1,),
        flow_head_hidden_size=8,
        use_mask_predictor=True,
    )
    return module


def _build_detector(name: str, **settings: Any) -> nn.Module:
    import torchvision

    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU())
    backbone.out_channels = 8  # type: ignore[assignment] # detectors read this attribute
    detector = getattr(torchvision.models.detection, name)
    return Detector(detector(backbone, 2, min_size=32, max_size=32, **settings))


def _build_anchors() -> Any:
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    return AnchorGenerator(((16,),), ((1.0,),))


def _build_faster_rcnn() -> nn.Module:
    import torchvision

    return _build_detector(
        "FasterRCNN",
        rpn_anchor_generator=_build_anchors(),
        box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 3, 2),
        rpn_pre_nms_top_n_train=8,
        rpn_post_nms_top_n_train=4,
        # These limits keep all boxes. With lower limits, the detector would draw boxes at random.
        rpn_batch_size_per_image=1000,
        box_batch_size_per_image=1000,
    )


def _sum_losses(output: Any) -> Tensor:
    """Average each loss over the replicas; return the sum of the averages."""
    return torch.stack([loss.mean() for loss in output.values()]).sum()


def _draw_detection_batch(rows: int) -> tuple[Tensor, ...]:
    corner = torch.arange(rows).view(rows, 1, 1)
    boxes = torch.tensor([4.0, 4.0, 24.0, 28.0]) + corner
    return draw_images(rows, 32), boxes, torch.ones(rows, 1, dtype=torch.long)


MODELS = [
    _define("ResNet", "batch norm", _build_resnet),
    _define(
        "DenseNet",
        "concatenated layers",
        lambda: _build(
            "DenseNet", growth_rate=4, block_config=(2, 2), num_init_features=8, num_classes=3
        ),
    ),
    _define(
        "GoogLeNet",
        "a named tuple of three outputs",
        lambda: _build(
            "GoogLeNet", num_classes=3, init_weights=False, dropout=0.0, dropout_aux=0.0
        ),
        loss=lambda output: sum(map(squared_error, output), torch.zeros(())).mean(),
    ),
    _define(
        "MaxViT",
        "attention in windows and in grids",
        lambda: _build(
            "MaxVit",
            stochastic_depth_prob=0.0,
            input_size=(32, 32),
            stem_channels=8,
            partition_size=2,
            block_channels=[8, 16],
            block_layers=[1, 1],
            head_dim=8,
            num_classes=3,
        ),
    ),
    _define(
        "MaxViT, one pixel",
        "windows of one pixel; odd numbers of elements",
        lambda: _build(
            "MaxVit",
            stochastic_depth_prob=0.0,
            input_size=(8, 8),
            stem_channels=4,
            partition_size=1,
            block_channels=[20, 20],
            block_layers=[2, 1],
            head_dim=10,
            num_classes=2,
        ),
        lambda rows: (draw_images(rows, 8),),
    ),
    _define(
        "R3D",
        "video; convolutions in 3-D",
        _build_r3d,
        lambda rows: (torch.randn(rows, 3, 4, 16, 16),),
    ),
    _define(
        "RAFT",
        "optical flow; a list of outputs; state that a module keeps between two calls",
        _build_raft,
        lambda rows: (draw_images(rows, 32), draw_images(rows, 32), 2),
        lambda output: torch.stack([flow.abs().mean() for flow in output]).mean(),
    ),
    _define(
        "LR-ASPP",
        "a dictionary of outputs; global average pooling",
        lambda: _build(
            "get_model", name="lraspp_mobilenet_v3_large", weights_backbone=None, num_classes=3
        ),
        loss=lambda output: squared_error(output["out"]),
    ),
    _define(
        "Faster R-CNN",
        "detection in two stages; a dictionary of losses",
        _build_faster_rcnn,
        _draw_detection_batch,
        _sum_losses,
    ),
    _define(
        "RetinaNet",
        "detection in one stage",
        lambda: _build_detector("RetinaNet", anchor_generator=_build_anchors()),
        _draw_detection_batch,
        _sum_losses,
    ),
]
