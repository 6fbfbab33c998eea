"""How a frame gets to us: the native half, and which frames we want."""

import atexit
import os

from torchdynamo.hook.build_check import load_native

_native = load_native()
atexit.register(_native.set_eval_frame, None)  # a callback must not be asked by an interpreter that is going down
os.register_at_fork(after_in_child=_native.forked)
