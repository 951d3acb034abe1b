"""Questions and answers over a topic: ``request`` and ``serve``, at nodes and clients alike."""
