"""A state machine that changes a wrapper of the target and a naive one in the same way."""
