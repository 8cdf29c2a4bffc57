"""GPUs and what their makers say of them (data sheets; dense 16-bit matrix rate, no sparsity)."""

from __future__ import annotations

from dataclasses import dataclass

PCIE_3, PCIE_4, PCIE_5 = 16e9, 32e9, 64e9  # bytes/s in one direction over 16 lanes


@dataclass(frozen=True, slots=True)
class Gpu:
    """memory: GiB. bandwidth: bytes/s from its memory. flops: floating-point operations/s in bf16,
    or in fp16 where there is no bf16. source: the document that says so. link: bytes/s to its
    neighbours, host_link: to the host's memory, each in one direction (NVLink or PCIe)."""

    name: str
    memory_gib: float
    bandwidth: float
    flops: float
    source: str
    link: float = PCIE_4
    host_link: float = PCIE_4


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("T4", 16, 320e9, 65e12, "NVIDIA T4 data sheet (fp16)", PCIE_3, PCIE_3),
        Gpu("L4", 24, 300e9, 121e12, "NVIDIA L4 data sheet, without sparsity"),
        Gpu("A10G", 24, 600e9, 70e12, "NVIDIA A10G data sheet"),
        Gpu("RTX 4090", 24, 1008e9, 165.2e12, "NVIDIA Ada architecture paper, fp32 accumulate"),
        Gpu("A100", 80, 2039e9, 312e12, "NVIDIA A100 80GB SXM data sheet", 300e9),
        Gpu(
            "H100",
            80,
            3350e9,
            989e12,
            "NVIDIA H100 SXM data sheet, without sparsity",
            450e9,
            PCIE_5,
        ),
        Gpu("H200", 141, 4800e9, 989e12, "NVIDIA H200 data sheet, without sparsity", 450e9, PCIE_5),
        Gpu(
            "B200",
            180,
            8000e9,
            2250e12,
            "NVIDIA HGX B200 data sheet, without sparsity",
            900e9,
            PCIE_5,
        ),
    )
}
