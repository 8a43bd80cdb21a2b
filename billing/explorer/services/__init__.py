"""All writes of the explorer."""

from billing.explorer.services.cubes import cube_make, cubes_ready, cubes_refresh

__all__ = ["cube_make", "cubes_ready", "cubes_refresh"]
