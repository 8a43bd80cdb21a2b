"""The worked examples in docstrings of the pure rooms are executed."""

import doctest
import importlib
import pkgutil

import pytest

import metering
import pricing


def modules() -> list[str]:
    return [
        module.name
        for package in (metering, pricing)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", modules())
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
