"""The expectations of primes.py, whoever writes it."""

import unittest

from primes import primes_up_to


class PrimesUpTo(unittest.TestCase):
    def test_the_first_ones(self):
        assert primes_up_to(30) == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]

    def test_the_limit_counts(self):
        assert primes_up_to(2) == [2]
        assert primes_up_to(7)[-1] == 7

    def test_below_two_there_is_none(self):
        assert primes_up_to(1) == []
        assert primes_up_to(-5) == []

    def test_there_are_168_up_to_a_thousand(self):
        assert len(primes_up_to(1000)) == 168


if __name__ == "__main__":
    unittest.main()
