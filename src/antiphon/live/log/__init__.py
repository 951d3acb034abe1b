"""The durable log of a node: what was delivered on each topic, in that order, with offsets and times.

``durable`` is the log, ``topic`` what it knows and keeps of each topic, ``store`` its directory on disk and everything
that can be wrong with it, ``formats`` the bytes and their checksums.
"""
