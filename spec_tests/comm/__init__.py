"""Chapter comm: copies and sums of tensors on several devices."""
