"""How a frame gets to us: the native half, and which frames we want."""

import atexit
import os
from multiprocessing.util import register_after_fork

from torchdynamo.hook.build_check import load_native

_native = load_native()
atexit.register(_native.set_eval_frame, None)  # a callback must not be asked by an interpreter that is going down
os.register_at_fork(after_in_child=_native.forked)
# A process that multiprocessing forks within a block is in none, like a thread that is started there and a process that
# is spawned: a DataLoader's workers would compile once more in each epoch. What is decorated is compiled there, too.
register_after_fork(_native, lambda _: _native.set_eval_frame(None))
