"""Misconceptions with the experiments that refute them, one module for each chapter."""
