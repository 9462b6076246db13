"""How many rows each device gets where nothing else is asked for."""


def even_chunks(rows: int, devices: int) -> list[int]:
    """The rows of each chunk: equal but for the last, and no more chunks than devices.

    No rows at all are ``devices`` chunks of none.
    """
    most = max(-(-rows // devices), 1)
    found = [min(most, rows - start) for start in range(0, rows, most)]
    return found or [0] * devices
