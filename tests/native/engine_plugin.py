"""A pytest plugin: the tests run on the library that `ENGINE` names, whichever is installed."""

import ctypes
import os

from iou_losses import native

native._library, native._isa = ctypes.CDLL(os.environ["ENGINE"]), "generic"
native.entry_point.cache_clear()
