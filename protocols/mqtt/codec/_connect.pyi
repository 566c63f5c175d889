"""The ordinary CONNECT, read without a step in Python."""

def ordinary(data: bytearray, size: int) -> tuple[int, int, str, bool, int, str | None, bytes | None] | None:
    """Read the CONNECT in front of data[0:size], if it is whole and an ordinary one.

    Ordinary: MQTT 3.1.1 or 5.0, no will, no properties, a client id, and texts of printable ASCII. For any
    other packet the answer is None, and `packets.decode_connect` says what it is.

    Returns:
        Where it ends, the version, the client id, whether the start is clean, the keep-alive time in
        seconds, the user name, and the password.

    """
