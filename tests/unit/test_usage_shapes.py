"""Every known shape of a usage object becomes exactly its classes, or is refused with its reason."""

import pytest

from metering.records import RecordError
from metering.token_usage import token_classes
from tests.usage_shapes import SHAPES, Shape

READ = [shape for shape in SHAPES if not shape.refused]
REFUSED = [shape for shape in SHAPES if shape.refused]


@pytest.mark.parametrize("shape", READ, ids=lambda shape: shape.sender)
def test_a_known_shape_has_exactly_these_classes(shape: Shape) -> None:
    classes = token_classes(shape.usage, input_only=shape.input_only)
    assert tuple(classes.counts.values()) == shape.classes
    assert (classes.cache_known, classes.usage_source) == (shape.cache_known, "provider")


@pytest.mark.parametrize("shape", REFUSED, ids=lambda shape: shape.sender)
def test_what_is_not_wholly_explained_is_refused_with_its_reason(shape: Shape) -> None:
    with pytest.raises(RecordError) as error:
        token_classes(shape.usage, input_only=shape.input_only)
    assert shape.refused in str(error.value)


def test_every_shape_has_a_name_of_its_own_and_a_public_source() -> None:
    assert len({shape.sender for shape in SHAPES}) == len(SHAPES) >= 100
    assert all(shape.source.startswith("https://") for shape in SHAPES)
    assert all((shape.classes is None) == bool(shape.refused) for shape in SHAPES)
