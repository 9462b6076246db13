"""Chapter cpp_front_end: torch::nn::parallel, and its comparison with the Python packages."""
