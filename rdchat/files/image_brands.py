"""Brands of image files in the container of ISO 14496-12, which films and sounds share."""

HEIC = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"))
"""Brands of ISO 23008-12. AVIF shares the last two, and also names one of its own."""
AVIF = frozenset((b"avif", b"avis"))


def read_brands(data: bytes) -> frozenset[bytes]:
    """Return the brands of a file, its own and those that it is compatible with; none for another container."""
    box = data[: int.from_bytes(data[:4], "big")] if data[4:8] == b"ftyp" else b""
    # Four bytes of a version follow the first.
    return frozenset(box[at : at + 4] for at in (8, *range(16, len(box), 4)))
