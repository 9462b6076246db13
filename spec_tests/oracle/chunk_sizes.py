"""The chunk sizes of scatter without the argument ``chunk_sizes``."""


def even_chunks(rows: int, devices: int) -> list[int]:
    """Return the number of rows of each chunk. The last chunk may be smaller than the others.

    There may be fewer chunks than devices. If there are no rows, each device gets an empty chunk.
    """
    full = max(-(-rows // devices), 1)
    sizes = [min(full, rows - start) for start in range(0, rows, full)]
    return sizes or [0] * devices
