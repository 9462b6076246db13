"""Clauses that the state machine ignores if the register of the target records a violation."""

ZERO_GRADIENTS = "divergences.FN-1.unused-stay-without-gradient"
SHARED_COPIES = "divergences.CO-4.repeated-devices-get-copies"
CPU_DEVICES = "divergences.DP-1.cpu-devices"
OUTPUT_OF_ONE_DEVICE = "divergences.DP-2.output-device-of-one-device"
CONSTANTS = "divergences.SG-1.replicas-follow-chunks"
CYCLES = "divergences.PA-6.the-original-is-the-cause"
INFERENCE = "divergences.PA-2.inference-mode-reaches-the-modules"
AUTOCAST = "divergences.PA-1.autocast-reaches-the-modules"
#: All of them.
CLAUSES = {
    *(ZERO_GRADIENTS, SHARED_COPIES, CPU_DEVICES, OUTPUT_OF_ONE_DEVICE),
    *(CONSTANTS, CYCLES, INFERENCE, AUTOCAST),
}
