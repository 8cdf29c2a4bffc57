"""Started by torchrun: rank 0 runs the tests of a file, the other processes run along."""

import sys

import pytest

from llmserve_lab.parallel.launch import join

join()
sys.exit(pytest.main(sys.argv[1:]))
