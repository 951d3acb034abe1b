"""Bytes between processes: TCP links and frames, TLS and certificates, and the encoding of every message.

``framing.py`` cuts bytes into frames and writes them, ``links.py`` keeps one connection to each peer, ``incoming.py``
reads those of others, ``listener.py`` bounds what
strangers may cost. ``codec.py`` encodes and decodes, from the types in ``schema.py`` (messages of the fabrics),
``peer_messages.py`` (between hosts) and ``client_messages.py``. To add a message to the
wire, write its class and name it in ``schema.py``.

It imports the kernel, orders, fabrics and the runtime, and decides nothing about topics or members.
Start with ``codec.py``, then ``framing.py``.
"""
