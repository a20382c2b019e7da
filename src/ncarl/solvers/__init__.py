"""Solvers of the paper's rivals: generators of steps, driven by `ncarl.loop.drive`."""
