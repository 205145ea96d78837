"""Models that several of these modules use."""

from collections.abc import Callable
from functools import cache

import pytest
from support.every_type import write_in_type

import hy3core

OpenModel = Callable[..., hy3core.Model]


@pytest.fixture(scope="session")
def open_model(tmp_path_factory: pytest.TempPathFactory) -> OpenModel:
    """open_model(type, ...): the model of support/every_type.py in that type."""
    folder = tmp_path_factory.mktemp("types")
    path_of = cache(lambda type_name: write_in_type(folder / f"{type_name}.gguf", type_name))
    return lambda type_name, **options: hy3core.Model(path_of(type_name), **options)
