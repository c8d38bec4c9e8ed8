"""Change what one object does, and nothing else: not its class, not its module, not other objects.

A library computes its box loss in the middle of a method. `change` gives one object a class
derived from its own, in which that method is ours. Everything that the object holds stays where
it is, so parameters, hooks, device and `isinstance` are as before, and the object can be copied,
pickled and changed back.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any, ClassVar

from iou_losses.integrations.box_term import BoxTerm


class Changed:
    """The base of the changes: methods for an object that has a box loss of one's choice.

    Attributes:
        original: the class that the object had before; call the library's own methods through it.
        chosen_box_loss: the loss.
    """

    original: ClassVar[Any]
    chosen_box_loss: BoxTerm

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle and copy by the two classes: the derived one has no name to be found by."""
        change, original = type(self).__bases__
        _, _, *state = self.original.__reduce_ex__(self, max(protocol, 2))
        return (new, (change, original), *state)


@cache
def derived(change: Any, original: Any) -> Any:
    """Return the class with the methods of `change` before those of `original`, the same one each time."""
    body = {"original": original, "__doc__": change.__doc__, "__module__": __name__}
    return type(f"{original.__name__}WithBoxLoss", (change, original), body)


def new(change: Any, original: Any) -> Any:
    """Return an object without its state, for pickle and copy."""
    made = derived(change, original)
    return made.__new__(made)


def change(thing: Any, by: Any, loss: BoxTerm) -> None:
    """Give an object the methods of `by`, and the loss; a change that it has already is undone first."""
    restore(thing)
    own: Any = type(thing)
    thing.__class__ = derived(by, own)
    thing.chosen_box_loss = loss


def restore(thing: Any) -> None:
    """Give an object its own class back; one that was not changed stays as it is."""
    if isinstance(thing, Changed):
        thing.__class__ = thing.original
        del thing.chosen_box_loss


def with_globals(function: Any, **replacements: Any) -> Any:
    """Return a copy of a Python function that finds other objects under some of its global names.

    Its module is not touched. The code object is copied too, since torch.compile keeps what it
    compiled by code object, and the module's name is left out, or it would look globals up there.

    Args:
        function: a function, or a method as its class holds it.
        replacements: global names, and what the copy finds under them.

    Raises:
        ImportError: if the function does not read one of the names: the library has changed.

    Example:
        >>> from iou_losses.integrations.changed import with_globals
        >>> limit = 3
        >>> def limited(x):
        ...     return min(x, limit)
        >>> with_globals(limited, limit=5)(7), limited(7)
        (5, 3)
    """
    unknown = replacements.keys() - set(function.__code__.co_names)
    if unknown:
        raise ImportError(f"{function.__module__}.{function.__qualname__} does not use {', '.join(sorted(unknown))}")
    scope = {name: value for name, value in function.__globals__.items() if name != "__name__"}
    code = function.__code__.replace()
    copy = FunctionType(code, {**scope, **replacements}, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
