"""Connect to the interpreter: the native frame hook, and the rules for which frames are captured."""

import atexit
import os
from multiprocessing.util import register_after_fork

from torchdynamo.hook.build_check import load_native

_native = load_native()
atexit.register(_native.set_eval_frame, None)  # no callback may run while the interpreter shuts down
os.register_at_fork(after_in_child=_native.forked)
# A process that multiprocessing forks inside of a compiling block starts outside of it, as new threads and spawned
# processes do: a DataLoader's workers would otherwise compile in each epoch. Decorated functions are compiled there.
register_after_fork(_native, lambda _: _native.set_eval_frame(None))
