"""Architectures of transformers, timm and torchvision, alone and in wrappers."""
