"""Datasets of xarray; without the extra `xarray` an import says that it is missing."""

from hsparse.optional_module import OptionalModule

OptionalModule("xarray", "xarray").load()
