"""Packages that some tests compare with: where one is missing, those tests are skipped and the others run."""

import pytest


class Module:
    """A module that is imported when something of it is used; the test, or the file, is skipped if there is none."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        package = self._name.partition(".")[0]
        pytest.importorskip(package, reason=f"compares with {package}, which is not installed")
        return getattr(pytest.importorskip(self._name), attribute)


ops = Module("torchvision.ops")
tv_tensors = Module("torchvision.tv_tensors")
matcher = Module("torchvision.models.detection._utils")
