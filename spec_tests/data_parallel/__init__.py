"""Chapter data_parallel: scatter, replicate, parallel_apply and gather as one module."""
