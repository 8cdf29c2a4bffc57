"""A memory whose slots are reserved in runs: what each run is for, and what of it is wasted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """`length` adjacent slots from `start`, free or reserved by one owner, who fills the first
    `used` of them."""

    start: int
    length: int
    owner: str | None = None  # None: free
    used: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.length

    @property
    def free(self) -> bool:
        return self.owner is None

    @property
    def wasted(self) -> int:
        """Slots reserved and not used (internal fragmentation)."""
        return 0 if self.free else self.length - self.used


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """A memory at one moment: regions in address order that cover it without a gap."""

    regions: tuple[Region, ...]

    @property
    def num_slots(self) -> int:
        return self.regions[-1].stop

    @property
    def num_reserved(self) -> int:
        return self.num_slots - self.num_free

    @property
    def num_used(self) -> int:
        return sum(region.used for region in self.regions)

    @property
    def internal_waste(self) -> int:
        """Slots that are reserved and hold no token."""
        return sum(region.wasted for region in self.regions)

    @property
    def num_free(self) -> int:
        return sum(region.length for region in self.regions if region.free)

    @property
    def largest_free_run(self) -> int:
        """The longest reservation that would succeed now."""
        return max((region.length for region in self.regions if region.free), default=0)

    @property
    def external_fragmentation(self) -> float:
        """Share of the free slots that lie outside the largest run: 0 is one piece."""
        return 1 - self.largest_free_run / self.num_free if self.num_free else 0.0

    def __str__(self) -> str:
        """A character per slot: the owner's last one, "_" where unused, "." where free."""
        return "".join(
            (r.owner[-1:] or "?") * r.used + "_" * r.wasted
            if r.owner is not None
            else "." * r.length
            for r in self.regions
        )
