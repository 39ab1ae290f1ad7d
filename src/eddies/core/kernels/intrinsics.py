"""Instructions that Python has no word for: prefetch, unaligned loads, vector compare, wide multiply.

Each is a numba intrinsic that emits LLVM directly. With the JIT off, plain twins of the same name
take their place, so that kernels can be stepped through.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _typed_intrinsic

from eddies.core.kernels.jit import JIT_DISABLED

__all__ = [
    "count_trailing_zeros",
    "equal_halves8",
    "equal_words8",
    "load8",
    "load64",
    "multiply_fold",
    "multiply_high",
    "prefetch",
    "store64",
    "zero_halves8",
    "zero_words16",
]

# Builder, context and argument types belong to numba and llvmlite, which are untyped: hence Any.
intrinsic: Any = _typed_intrinsic
_I8, _I16, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 16, 32, 64, 128))


def _splat(builder: Any, scalar: Any, width: int) -> Any:
    empty = ir.Constant(ir.VectorType(scalar.type, width), ir.Undefined)
    first = builder.insert_element(empty, scalar, _I32(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(_I32, width), [0] * width)
    )


if not JIT_DISABLED:

    @intrinsic
    def prefetch(typing: Any, address: Any) -> Any:
        """Ask for the cache line at `address`; a hint that can neither fail nor fault."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _I8.as_pointer()
            shape = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
            function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
            target = builder.inttoptr(args[0], pointer)
            builder.call(function, [target, _I32(0), _I32(3), _I32(1)])
            return context.get_dummy_value()

        return types.void(types.int64), emit

    @intrinsic
    def load64(typing: Any, address: Any) -> Any:
        """The eight bytes at `address` (any alignment) as one little-endian word."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], _I64.as_pointer()), align=1)

        return types.uint64(types.int64), emit

    @intrinsic
    def store64(typing: Any, address: Any, word: Any) -> Any:
        """Write eight bytes at `address` (any alignment)."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], _I64.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.uint64), emit

    @intrinsic
    def load8(typing: Any, address: Any) -> Any:
        """The byte at `address`."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], _I8.as_pointer()))

        return types.uint8(types.int64), emit

    @intrinsic
    def equal_words8(typing: Any, address: Any, word: Any) -> Any:
        """Bit i is set where the i-th of the eight words in the 64-byte line equals `word`."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line = ir.VectorType(_I64, 8)
            words = builder.load(builder.inttoptr(args[0], line.as_pointer()), align=64)
            equal = builder.icmp_unsigned("==", words, _splat(builder, args[1], 8))
            return builder.zext(builder.bitcast(equal, _I8), _I64)

        return types.uint64(types.int64, types.uint64), emit

    @intrinsic
    def equal_halves8(typing: Any, address: Any, half: Any) -> Any:
        """Bit i is set where the i-th of the eight 32-bit words at `address` equals `half`."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line = ir.VectorType(_I32, 8)
            halves = builder.load(builder.inttoptr(args[0], line.as_pointer()), align=32)
            equal = builder.icmp_unsigned("==", halves, _splat(builder, args[1], 8))
            return builder.zext(builder.bitcast(equal, _I8), _I64)

        return types.uint64(types.int64, types.uint32), emit

    @intrinsic
    def zero_halves8(typing: Any, address: Any) -> Any:
        """Bit i is set where the i-th of the eight 32-bit words at `address` is zero."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line = ir.VectorType(_I32, 8)
            halves = builder.load(builder.inttoptr(args[0], line.as_pointer()), align=32)
            zero = builder.icmp_unsigned("==", halves, ir.Constant(line, [0] * 8))
            return builder.zext(builder.bitcast(zero, _I8), _I64)

        return types.uint64(types.int64), emit

    @intrinsic
    def zero_words16(typing: Any, address: Any) -> Any:
        """Bit i is set where the i-th of the sixteen 32-bit words in the 64-byte line is zero."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line = ir.VectorType(_I32, 16)
            words = builder.load(builder.inttoptr(args[0], line.as_pointer()), align=64)
            zero = builder.icmp_unsigned("==", words, ir.Constant(line, [0] * 16))
            return builder.zext(builder.bitcast(zero, _I16), _I64)

        return types.uint64(types.int64), emit

    @intrinsic
    def count_trailing_zeros(typing: Any, word: Any) -> Any:
        """Position of the lowest set bit of a non-zero word."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            shape = ir.FunctionType(_I64, [_I64, ir.IntType(1)])
            function = cgutils.get_or_insert_function(builder.module, shape, "llvm.cttz.i64")
            return builder.call(function, [args[0], ir.Constant(ir.IntType(1), 1)])

        return types.uint64(types.uint64), emit

    @intrinsic
    def multiply_fold(typing: Any, left: Any, right: Any) -> Any:
        """The two halves of the 128-bit product, exclusive-or'ed: the mixing step of a string hash."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            product = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
            high = builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)
            return builder.xor(builder.trunc(product, _I64), high)

        return types.uint64(types.uint64, types.uint64), emit

    @intrinsic
    def multiply_high(typing: Any, left: Any, right: Any) -> Any:
        """The upper half of the 128-bit product of two signed integers."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            product = builder.mul(builder.sext(args[0], _I128), builder.sext(args[1], _I128))
            return builder.trunc(builder.ashr(product, ir.Constant(_I128, 64)), _I64)

        return types.int64(types.int64, types.int64), emit

else:

    def prefetch(address: int) -> None:
        """Nothing to do: Python does not see caches."""

    def load64(address: int) -> np.uint64:
        """The eight bytes at `address` as a word."""
        return np.uint64(ctypes.c_uint64.from_address(int(address)).value)

    def store64(address: int, word: int) -> None:
        """Write eight bytes at `address`."""
        ctypes.c_uint64.from_address(int(address)).value = int(word)

    def load8(address: int) -> np.uint8:
        """The byte at `address`."""
        return np.uint8(ctypes.c_uint8.from_address(int(address)).value)

    def equal_words8(address: int, word: int) -> np.uint64:
        """Which of the eight words equal `word`."""
        line = (ctypes.c_uint64 * 8).from_address(int(address))
        return np.uint64(sum(1 << i for i in range(8) if line[i] == int(word)))

    def equal_halves8(address: int, half: int) -> np.uint64:
        """Which of the eight half words equal `half`."""
        line = (ctypes.c_uint32 * 8).from_address(int(address))
        return np.uint64(sum(1 << i for i in range(8) if line[i] == int(half)))

    def zero_halves8(address: int) -> np.uint64:
        """Which of the eight half words are zero."""
        return equal_halves8(address, 0)

    def zero_words16(address: int) -> np.uint64:
        """Which of the sixteen half words are zero."""
        line = (ctypes.c_uint32 * 16).from_address(int(address))
        return np.uint64(sum(1 << i for i in range(16) if line[i] == 0))

    def count_trailing_zeros(word: int) -> np.uint64:
        """Position of the lowest set bit."""
        return np.uint64((int(word) & -int(word)).bit_length() - 1)

    def multiply_fold(left: int, right: int) -> np.uint64:
        """The halves of the product, exclusive-or'ed."""
        product = int(left) * int(right)
        return np.uint64((product ^ (product >> 64)) & 0xFFFFFFFFFFFFFFFF)

    def multiply_high(left: int, right: int) -> np.int64:
        """The upper half of the product."""
        return np.int64((int(left) * int(right)) >> 64)
