"""Every architecture of transformers, timm, torchvision and diffusers, alone and in a wrapper."""
