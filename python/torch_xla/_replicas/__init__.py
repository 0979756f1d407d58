"""Replicas: the program runs once per device, and they meet.

`world` says who we are among how many, `groups` who meets whom, `collectives` what is exchanged;
`network` has what several hosts need. `launch` starts replicas; `loading` and `uploads` bring each
its batches.
"""

from torch_xla import _submodules

__getattr__ = _submodules.importing(__name__)
