"""Functions of ``torch.nn.functional`` that are not pointwise."""

import torch
from torch import Tensor
from torch.nn import functional

from .inputs import OperatorCase, integers, normal, positive, probabilities

__all__ = ["FUNCTIONAL"]

IMAGE = normal(2, 3, 8, 8)
X = normal(6, 4)
INDEX = integers(4, 6)


def _detached_signs(x: Tensor) -> Tensor:
    return x.detach().sign()


FUNCTIONAL: dict[str, OperatorCase] = {
    "max_pool1d": (lambda x: functional.max_pool1d(x, 2), (normal(2, 3, 8),)),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "max_pool2d indices": (lambda x: functional.max_pool2d(x, 2, return_indices=True), (IMAGE,)),
    "max_pool3d": (lambda x: functional.max_pool3d(x, 2), (normal(1, 2, 4, 4, 4),)),
    "avg_pool1d": (lambda x: functional.avg_pool1d(x, 2), (normal(2, 3, 8),)),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 2), (IMAGE,)),
    "adaptive_avg_pool2d": (lambda x: functional.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,)),
    "adaptive_max_pool2d": (lambda x: functional.adaptive_max_pool2d(x, 3), (IMAGE,)),
    "lp_pool2d": (lambda x: functional.lp_pool2d(x, 2, 2), (positive(2, 3, 8, 8),)),
    "max_unpool2d": (
        lambda x: functional.max_unpool2d(
            *functional.max_pool2d(x, 2, return_indices=True), [2, 2]
        ),
        (IMAGE,),
    ),
    "conv1d": (functional.conv1d, (normal(2, 4, 9), normal(6, 4, 3), normal(6))),
    "conv2d in groups": (
        lambda x, w: functional.conv2d(x, w, stride=2, padding=1, groups=2),
        (normal(2, 4, 7, 6), normal(6, 2, 3, 3)),
    ),
    "conv2d dilated": (
        lambda x, w: functional.conv2d(x, w, dilation=2),
        (IMAGE, normal(5, 3, 2, 2)),
    ),
    "conv2d of channels-last": (
        lambda x, w: functional.conv2d(x.to(memory_format=torch.channels_last), w),
        (IMAGE, normal(5, 3, 3, 3)),
    ),
    "conv2d of no images": (functional.conv2d, (normal(0, 3, 8, 8), normal(5, 3, 3, 3))),
    "conv3d": (functional.conv3d, (normal(1, 2, 5, 5, 5), normal(3, 2, 2, 2, 2))),
    "conv_transpose1d": (
        lambda x, w: functional.conv_transpose1d(x, w, stride=2, output_padding=1),
        (normal(2, 4, 5), normal(4, 3, 3)),
    ),
    "conv_transpose2d": (
        functional.conv_transpose2d,
        (normal(2, 4, 5, 5), normal(4, 3, 3, 3), normal(3)),
    ),
    "conv_transpose3d": (
        functional.conv_transpose3d,
        (normal(1, 2, 3, 3, 3), normal(2, 3, 2, 2, 2)),
    ),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        (IMAGE, normal(3), normal(3)),
    ),
    "layer_norm": (
        lambda x, w, b: functional.layer_norm(x, (4,), w, b),
        (X, normal(4), normal(4)),
    ),
    "group_norm": (lambda x, w: functional.group_norm(x, 2, w), (normal(2, 4, 5), normal(4))),
    "instance_norm": (functional.instance_norm, (IMAGE,)),
    "rms_norm": (lambda x, w: functional.rms_norm(x, (4,), w), (X, normal(4))),
    "local_response_norm": (lambda x: functional.local_response_norm(x, 2), (IMAGE,)),
    "normalize": (functional.normalize, (X,)),
    "cosine_similarity": (functional.cosine_similarity, (X, normal(6, 4))),
    "pairwise_distance": (functional.pairwise_distance, (X, normal(6, 4))),
    "pdist": (functional.pdist, (X,)),
    "embedding": (lambda w, i: functional.embedding(i, w, padding_idx=1), (normal(4, 3), INDEX)),
    "embedding_bag": (
        lambda w, i: functional.embedding_bag(i, w, mode="mean"),
        (normal(4, 3), integers(4, 2, 3)),
    ),
    "interpolate nearest": (lambda x: functional.interpolate(x, scale_factor=2), (IMAGE,)),
    "interpolate bilinear": (
        lambda x: functional.interpolate(x, (5, 7), mode="bilinear"),
        (IMAGE,),
    ),
    "interpolate bicubic": (lambda x: functional.interpolate(x, (5, 7), mode="bicubic"), (IMAGE,)),
    "grid_sample": (
        lambda x, g: functional.grid_sample(x, g.tanh(), align_corners=False),
        (IMAGE, normal(2, 4, 4, 2)),
    ),
    "affine_grid": (
        lambda t: functional.affine_grid(t, [2, 3, 4, 4], align_corners=False),
        (normal(2, 2, 3),),
    ),
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), (normal(1, 4, 3, 3),)),
    "image to columns": (lambda x: functional.unfold(x, 3), (IMAGE,)),
    "columns to image": (lambda x: functional.fold(x, (4, 4), 2), (normal(1, 8, 9),)),
    "channel_shuffle": (lambda x: functional.channel_shuffle(x, 2), (normal(1, 4, 3, 3),)),
    "mse_loss": (functional.mse_loss, (X, normal(6, 4))),
    "l1_loss": (functional.l1_loss, (X, normal(6, 4))),
    "smooth_l1_loss": (functional.smooth_l1_loss, (X, normal(6, 4))),
    "huber_loss": (functional.huber_loss, (X, normal(6, 4))),
    "cross_entropy": (functional.cross_entropy, (X, INDEX)),
    "cross_entropy smoothed": (
        lambda x, i, w: functional.cross_entropy(x, i, w.detach(), label_smoothing=0.1),
        (X, INDEX, positive(4)),
    ),
    "nll_loss2d": (
        lambda x, i: functional.nll_loss(x.log_softmax(1), i),
        (normal(2, 4, 3, 3), integers(4, 2, 3, 3)),
    ),
    "binary_cross_entropy": (
        lambda x, y: functional.binary_cross_entropy(x, y.detach()),
        (probabilities(6), probabilities(6)),
    ),
    "binary_cross_entropy_with_logits": (
        lambda x, y: functional.binary_cross_entropy_with_logits(x, y.detach()),
        (normal(6), probabilities(6)),
    ),
    "kl_div": (
        lambda x, y: functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        (X, normal(6, 4)),
    ),
    "poisson_nll_loss": (
        lambda x, y: functional.poisson_nll_loss(x, y.detach()),
        (X, positive(6, 4)),
    ),
    "gaussian_nll_loss": (functional.gaussian_nll_loss, (X, normal(6, 4), positive(6, 4))),
    "hinge_embedding_loss": (
        lambda x, y: functional.hinge_embedding_loss(x, _detached_signs(y)),
        (X, X),
    ),
    "soft_margin_loss": (lambda x, y: functional.soft_margin_loss(x, _detached_signs(y)), (X, X)),
    "margin_ranking_loss": (
        lambda x, y, z: functional.margin_ranking_loss(x, y, _detached_signs(z)),
        (normal(6), normal(6), normal(6)),
    ),
    "multi_margin_loss": (functional.multi_margin_loss, (X, INDEX)),
    "multilabel_soft_margin_loss": (
        lambda x, y: functional.multilabel_soft_margin_loss(x, y.detach()),
        (X, probabilities(6, 4)),
    ),
    "cosine_embedding_loss": (
        lambda x, y, z: functional.cosine_embedding_loss(x, y, _detached_signs(z)),
        (X, normal(6, 4), normal(6)),
    ),
    "triplet_margin_loss": (functional.triplet_margin_loss, (X, normal(6, 4), normal(6, 4))),
    "ctc_loss": (
        lambda x, t: functional.ctc_loss(
            x.log_softmax(2), t + 1, torch.tensor([7, 7]), torch.tensor([3, 2])
        ),
        (normal(7, 2, 5), integers(4, 2, 3)),
    ),
}
