"""Readers of what tools print about a node; every one makes a NodeTopology, or one TopologyError.

`reading` tells which format a text is in and calls its reader: `nvidia_smi` (with `affinity` for
the columns behind the links), `amd` for AMD's tools, `nccl_xml`, `hwloc_xml` (with
`hwloc_distances`), `numactl`, `saved` (our own JSON); `pasted` first takes off what pasting put
around it. `xmltree` reads XML that nobody vouches for.
"""
