"""Values of AMQP 1.0 for kernels; see `_simple.pyx`. Only for other kernels."""

def section_places(payload: bytes) -> dict[int, int] | None:
    """Where the value of each section of a message begins, by its descriptor; of several alike, the first.

    None: a descriptor is no small number, or a section is cut short.
    """
