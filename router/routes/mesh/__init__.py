"""The control plane of a mesh: routers of several sites that find each other's addresses.

``mesh.Mesh`` is the machine of one router and ``edge.Edge`` that of an edge; ``mesh`` opens with
the theory of operation. A shell gives them events and the time, carries out their orders, and wakes
them at their deadline. The data plane asks ``paths.Paths``.
"""
