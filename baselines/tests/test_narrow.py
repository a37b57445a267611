"""BF16 and E4M3 conversion against what their definitions say."""

import unittest

import supervisor  # noqa: F401  (puts the baselines on the path)

import numpy as np

import narrow


def neighbors(values):
    """Values, and the float32 values next to them on both sides."""
    up, down = (np.nextafter(values, np.float32(end)) for end in (np.inf, -np.inf))
    return np.concatenate([values, up, down])


def nearest_even(values, grid):
    """For each value, the index of the nearest grid value, the even index on ties; beyond the ends, the end."""
    right = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    low, high = values - grid[right - 1], grid[right] - values
    even = right - right % 2
    return np.where(low < high, right - 1, np.where(high < low, right, np.where(even == right, right, right - 1)))


class E4M3(unittest.TestCase):
    def test_codes_survive_the_way_there_and_back(self):
        codes = np.arange(256, dtype=np.uint8)
        self.assertTrue(np.array_equal(narrow.f32_to_f8(narrow.f8_to_f32(codes)), codes))

    def test_hand_computed_codes(self):
        known = {0x00: 0.0, 0x01: 2.0**-9, 0x07: 7 * 2.0**-9, 0x08: 2.0**-6, 0x38: 1.0, 0x7E: 448.0, 0xBC: -1.5}
        for code, value in known.items():
            self.assertEqual(narrow.f8_to_f32(np.array([code], np.uint8))[0], value)
            self.assertEqual(narrow.f32_to_f8(np.array([value], np.float32))[0], code)

    def test_every_code_midpoint_and_neighbor_rounds_to_nearest_even(self):
        grid = narrow.f8_to_f32(np.arange(0x7F, dtype=np.uint8)).astype(np.float64)
        middles = ((grid[1:] + grid[:-1]) / 2).astype(np.float32)
        random = np.random.default_rng(0).uniform(0, 500, 100_000).astype(np.float32)
        values = np.abs(np.concatenate([neighbors(grid.astype(np.float32)), neighbors(middles), random, random / 512]))
        expected = nearest_even(values.astype(np.float64), grid).astype(np.uint8)
        self.assertTrue(np.array_equal(narrow.f32_to_f8(values), expected))
        self.assertTrue(np.array_equal(narrow.f32_to_f8(-values), expected | 0x80))

    def test_it_saturates_and_keeps_nan_with_its_sign(self):
        values = np.array([np.inf, -np.inf, 1e30, np.nan, -np.nan], np.float32)
        self.assertEqual(narrow.f32_to_f8(values).tolist(), [0x7E, 0xFE, 0x7E, 0x7F, 0xFF])


class BF16(unittest.TestCase):
    def test_codes_survive_the_way_there_and_back(self):
        codes = np.arange(1 << 16, dtype=np.uint16)
        wide = narrow.bf16_to_f32(codes)
        numbers = ~np.isnan(wide)
        self.assertTrue(np.array_equal(narrow.f32_to_bf16(wide)[numbers], codes[numbers]))
        self.assertTrue(np.isnan(narrow.bf16_to_f32(narrow.f32_to_bf16(wide[~numbers]))).all())

    def test_midpoints_round_to_even_and_the_largest_to_infinity(self):
        codes = np.arange(0x7F7F, dtype=np.uint32)
        middles = (codes << 16 | 0x8000).astype(np.uint32).view(np.float32)
        self.assertTrue(np.array_equal(narrow.f32_to_bf16(middles), codes + codes % 2))
        above = (codes << 16 | 0x8001).astype(np.uint32).view(np.float32)
        self.assertTrue(np.array_equal(narrow.f32_to_bf16(above), codes + 1))
        below = (codes << 16 | 0x7FFF).astype(np.uint32).view(np.float32)
        self.assertTrue(np.array_equal(narrow.f32_to_bf16(below), codes))
        self.assertEqual(narrow.f32_to_bf16(np.array([np.finfo(np.float32).max], np.float32))[0], 0x7F80)


if __name__ == "__main__":
    unittest.main()
