"""Tests and measures of a running `hy3 serve`: load, fuzz, throughput and gaps."""
