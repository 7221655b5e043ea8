"""The mesh in a core: control links to neighbors, and links for deliveries to other sites.

``control`` has the machine of ``routes.mesh`` talk to the neighbors, and ``names`` what both ends
of a link between sites call things.
"""
