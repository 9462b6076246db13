"""Chapters cpp and systems: torch::nn::parallel, and its comparison with the Python packages."""
