"""The default sizes of chunks."""


def even_chunks(rows: int, devices: int) -> list[int]:
    """Return the rows of each chunk: equal except for the last, at most one chunk a device.

    A tensor without rows has ``devices`` empty chunks.
    """
    most = max(-(-rows // devices), 1)
    found = [min(most, rows - start) for start in range(0, rows, most)]
    return found or [0] * devices
