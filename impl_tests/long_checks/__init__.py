"""Programs that test impl for longer than the gate does, and the tests of these programs."""
