"""Items of a map on machines that share nothing but a storage.

Modules, in reading order:

- `item`: work on an item there: what travels, and the worker that continues when another has died
- `packages`: what travels, and where it is kept on the way
- `executor`: the executor, for a cluster of any kind
- `ray_cluster`: a Ray cluster
"""

from hankweave_server.features.map.remote.executor import RemoteExecutor
from hankweave_server.features.map.remote.ray_cluster import ray_cluster

__all__ = ["RemoteExecutor", "ray_cluster"]
