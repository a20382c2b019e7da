"""LAPACK from compiled code: calls by address, and the addresses.

Addresses are passed as arguments, not captured, so that code which calls them can be
cached on disk.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic


def _pointer_call(arity: int) -> Any:
    """An intrinsic that calls a C function by address with pointer arguments."""

    def call(typingctx: Any, address: Any, *pointers: Any) -> Any:
        signature = types.void(types.intp, *[types.intp] * arity)

        def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
            void_pointer = cgutils.voidptr_t
            function = ir.FunctionType(ir.VoidType(), [void_pointer] * arity)
            target = builder.inttoptr(args[0], function.as_pointer())
            builder.call(target, [builder.inttoptr(a, void_pointer) for a in args[1:]])
            return context.get_dummy_value()

        return signature, codegen

    return call


@intrinsic
def call5(typingctx, address, a, b, c, d, e):
    """Call ``void f(void *a, ..., void *e)`` at ``address``."""
    return _pointer_call(5)(typingctx, address, a, b, c, d, e)


@intrinsic
def call8(typingctx, address, a, b, c, d, e, f, g, h):
    """Call ``void f(void *a, ..., void *h)`` at ``address``."""
    return _pointer_call(8)(typingctx, address, a, b, c, d, e, f, g, h)


@cache
def lapack_addresses(dtype: str) -> tuple[int, int, int, int]:
    """Addresses of potrf, potrs, trsv and potri for a dtype."""
    letter = {"float64": "d", "float32": "s"}[dtype]
    lapack, blas = "scipy.linalg.cython_lapack", "scipy.linalg.cython_blas"
    return (
        get_cython_function_address(lapack, letter + "potrf"),
        get_cython_function_address(lapack, letter + "potrs"),
        get_cython_function_address(blas, letter + "trsv"),
        get_cython_function_address(lapack, letter + "potri"),
    )
