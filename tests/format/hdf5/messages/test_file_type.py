"""Types without gaps, and which have some."""

from __future__ import annotations

import pytest

from hsparse.errors import BadRequest, Unsupported
from hsparse.hdf5.format.messages.file_type import file_type


def test_what_is_no_type_of_a_file() -> None:
    with pytest.raises(Unsupported, match="H5T_STD_REF cannot be written"):
        file_type({"class": "H5T_REFERENCE", "base": "H5T_STD_REF"})
    with pytest.raises(BadRequest, match="H5T_NATIVE_INT is not the name"):
        file_type("H5T_NATIVE_INT")
