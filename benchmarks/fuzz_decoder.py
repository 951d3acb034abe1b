"""Coverage-guided fuzzing of the decoder: ``python benchmarks/fuzz_decoder.py -runs=1000000``.

Needs atheris (``pip install atheris``), which is no dependency of anything else. It begins with the frames of recorded
connections of all three fabrics (:mod:`antiphon.torture.hostile.inputs`) and follows whatever reaches new lines of the
live host. Half of the changes are libFuzzer's, which know bytes; the other half replace values inside of frames. The
decoder may refuse with :class:`ProtocolError` and nothing else, and what it takes must come back the same when it is
encoded and decoded again. Arguments are those of libFuzzer; a crash is written to a file that can be given again.

Run it on the plain sources (``PYTHONPATH=src``): compiled modules cannot be followed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["antiphon.transport", "antiphon.api", "antiphon.fabrics"]):
    import antiphon
    from antiphon.api.batch_codec import check_payload, decode_columns
    from antiphon.kernel.errors import ProtocolError
    from antiphon.sessions.client_messages import CLIENT_CONTROLS
    from antiphon.torture.hostile.inputs import Mutator, Recordings, record
    from antiphon.transport.codec import Codec
    from antiphon.transport.peer_messages import PEER_CONTROLS
    from antiphon.transport.schema import FABRIC_KINDS

FABRICS = tuple(FABRIC_KINDS)
CODECS = [Codec((*PEER_CONTROLS, *CLIENT_CONTROLS), FABRIC_KINDS[fabric], check_payload) for fabric in FABRICS]
PAYLOAD = len(FABRICS)
"""The first byte of an input says which fabric's decoder it is for; this one, that it is a payload."""


def try_one(data: bytes) -> None:
    """Decode, and if that works encode and decode again."""
    if not data:
        return
    choice, rest = data[0] % (PAYLOAD + 1), data[1:]
    try:
        if choice == PAYLOAD:
            decode_columns(rest)
            return
        codec = CODECS[choice]
        message = codec.decode(rest)
        codec.forget()
    except ProtocolError:
        return
    if type(message) in FABRIC_KINDS[FABRICS[choice]]:
        encoded = codec.encode(message)
        codec.forget()
        again = codec.encode(codec.decode(encoded))
    else:
        encoded = codec.encode_control(message)
        again = codec.encode_control(codec.decode(encoded))
    codec.forget()
    assert again == encoded, "what is taken comes back the same"


def change(data: bytes, max_size: int, seed: int) -> bytes:
    """The next input."""
    if seed % 2 or len(data) < 2:
        changed: bytes = atheris.Mutate(data, max_size)
        return changed
    return (data[:1] + Mutator(Recordings(), seed).mutated(data[1:]))[:max_size]


def write_corpus(directory: Path) -> int:
    """The frames of recordings, one file each; how many they are."""
    count = 0
    for place, fabric in enumerate(FABRICS):
        recordings = antiphon.run(record(fabric))
        for frame in {frame for session in (*recordings.peers, *recordings.clients) for frame in session}:
            (directory / f"{fabric}-{count}").write_bytes(bytes([place]) + frame)
            count += 1
    return count


def main() -> None:
    """Record, and fuzz."""
    with tempfile.TemporaryDirectory(prefix="antiphon-fuzz-") as directory:
        print(f"{write_corpus(Path(directory))} recorded frames to begin with", flush=True)
        atheris.Setup([sys.argv[0], "-max_len=4096", *sys.argv[1:], directory], try_one, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
