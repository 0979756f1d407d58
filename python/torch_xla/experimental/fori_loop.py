"""`fori_loop` and `while_loop`: loops of the program."""

from torch_xla._capture.loops import fori_loop as fori_loop, while_loop as while_loop
