"""One call that gives a detector of another library a box loss of one's choice.

Nothing is imported before it is asked for: `import iou_losses.integrations.torchvision` needs
torchvision, and nothing else does.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def required(module: str, *names: str, install: str, tested: str) -> Any:
    """Import a module of another library that an integration stands on.

    Args:
        module: its full name, such as `"torchvision.models.detection.fcos"`.
        names: what the integration reads from it.
        install: what the user has to install, as pip calls it.
        tested: the versions that the integration was tested with.

    Returns:
        The module. It is typed as `Any`, since these libraries carry no complete types.

    Raises:
        ModuleNotFoundError: if the library is not installed; names it and what to install.
        ImportError: if the library is another version that lacks the module or one of the names.

    Example:
        >>> from iou_losses.integrations import required
        >>> required("torch.nn", "Module", install="torch", tested="2.14").__name__
        'torch.nn'
    """
    library = module.partition(".")[0]
    try:
        import_module(library)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this integration of iou_losses needs {library}, tested with {tested}: pip install {install}",
            name=error.name,
        ) from error
    try:
        found = import_module(module)
        missing = [name for name in names if not hasattr(found, name)]
    except ModuleNotFoundError:
        missing = list(names)
    if missing:
        version = getattr(import_module(library), "__version__", "of an unknown version")
        raise ImportError(
            f"{library} {version} has no {', '.join(f'{module}.{name}' for name in missing)}; "
            f"this integration of iou_losses was tested with {library} {tested}"
        )
    return found
