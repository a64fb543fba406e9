"""The xarray engine `hsparse`; importing it without the extra `xarray` raises an error that names the extra."""

from hsparse.optional_module import OptionalModule

OptionalModule("xarray", "xarray").load()
