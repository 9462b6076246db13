"""Chapter functions: the autograd Functions Scatter, Gather, Broadcast and ReduceAddCoalesced."""
