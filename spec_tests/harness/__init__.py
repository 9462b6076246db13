"""What the chapters share: targets, devices, calls compared, verdicts, registers."""
