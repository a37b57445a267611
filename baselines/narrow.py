"""BF16 and F8_E4M3 as numpy arrays of uint16 and uint8: conversion to and from float32.

Stores round to nearest even. E4M3 is OCP's E4M3FN: it saturates to 448 (infinities too) and keeps a NaN with its
sign as 0x7f or 0xff. All functions work on whole arrays; those with `out` and `temporary` allocate nothing large
when both are given.
"""

import numpy as np

F8_MAX = np.float32(448.0)
_F8_MAX_BITS = F8_MAX.view(np.uint32)
_INFINITE = np.uint32(0x7F800000)
_F8_ROUND_AND_REBIAS = np.uint32((0x7FFFF - (120 << 23)) & 0xFFFFFFFF)  # the exponent's bias goes from 127 to 7
_F8_SMALLEST_NORMAL = np.uint32(0x3C800000)  # 2**-6 as float32 bits
_F8_SUBNORMAL_SHIFT = np.float32(16384.0)  # adding 2**14 leaves multiples of 2**-9 in a float32's low bits


def bf16_to_f32(values, out=None):
    """Widens BF16 bits (uint16) to float32; exact. `out`: float32 array of the same shape."""
    if out is None:
        out = np.empty(values.shape, dtype=np.float32)
    bits = out.view(np.uint32)
    np.copyto(bits, values)
    np.left_shift(bits, 16, out=bits)
    return out


def f32_to_bf16(values, out=None, temporary=None):
    """Rounds float32 to BF16 bits (uint16), nearest even; a NaN stays a quiet NaN with its sign.

    `out`: uint16, `temporary`: uint32, both of the same shape.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if out is None:
        out = np.empty(bits.shape, dtype=np.uint16)
    if temporary is None:
        temporary = np.empty(bits.shape, dtype=np.uint32)
    np.right_shift(bits, 16, out=temporary)
    np.bitwise_and(temporary, 1, out=temporary)
    np.add(temporary, 0x7FFF, out=temporary)
    np.add(temporary, bits, out=temporary)
    np.right_shift(temporary, 16, out=temporary)
    np.copyto(out, temporary, casting="unsafe")
    lost = np.isnan(values)
    if lost.any():
        out[lost] = (bits[lost] >> 16).astype(np.uint16) | np.uint16(0x40)
    return out


def f8_to_f32(values):
    """Widens E4M3 bits (uint8) to float32; exact."""
    return _F8_VALUES[values]


def f32_to_f8(values, out=None, temporaries=None):
    """Rounds float32 to E4M3 bits (uint8): nearest even, saturating, NaN kept with its sign.

    `values`: contiguous; `out`: uint8, `temporaries`: two uint32 arrays, all of the same shape.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if out is None:
        out = np.empty(bits.shape, dtype=np.uint8)
    size, code = temporaries or (np.empty_like(bits), np.empty_like(bits))
    np.bitwise_and(bits, 0x7FFFFFFF, out=size)
    has_nan = size.size and size.max() > _INFINITE
    np.minimum(size, _F8_MAX_BITS, out=size)
    np.right_shift(size, 20, out=code)
    np.bitwise_and(code, 1, out=code)
    np.add(code, _F8_ROUND_AND_REBIAS, out=code)
    np.add(code, size, out=code)
    np.right_shift(code, 20, out=code)
    tiny = size < _F8_SMALLEST_NORMAL
    if tiny.any():
        shifted = size.view(np.float32)
        np.add(shifted, _F8_SUBNORMAL_SHIFT, out=shifted)
        np.bitwise_and(size, 0xFF, out=size)
        np.copyto(code, size, where=tiny)
    np.right_shift(bits, 24, out=size)
    np.bitwise_and(size, 0x80, out=size)
    np.bitwise_or(code, size, out=code)
    np.copyto(out, code, casting="unsafe")
    if has_nan:
        lost = np.isnan(values)
        out[lost] = (bits[lost] >> 24).astype(np.uint8) & np.uint8(0x80) | np.uint8(0x7F)
    return out


def _f8_table():
    codes = np.arange(256)
    exponent, fraction = (codes >> 3) & 0xF, codes & 7
    size = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    size[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes & 0x80, -size, size).astype(np.float32)


_F8_VALUES = _f8_table()
