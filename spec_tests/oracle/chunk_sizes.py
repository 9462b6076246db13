"""The default chunk sizes."""


def even_chunks(rows: int, devices: int) -> list[int]:
    """Return the rows of each chunk. All chunks but the last are equal; surplus devices get none.

    A tensor without rows gives each device an empty chunk.
    """
    most = max(-(-rows // devices), 1)
    found = [min(most, rows - start) for start in range(0, rows, most)]
    return found or [0] * devices
