"""Chapter cpp_front_end: torch::nn::parallel beside the others."""
