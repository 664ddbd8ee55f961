"""Building images in a sandbox, and the store of what was built: ``DATA/images``.

One builder process per image (:mod:`~starverse.node.images.build`), which goes on without the server that
started it; the server finds it again by its lock.
"""
