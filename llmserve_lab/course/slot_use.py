"""What the slots of a reserved memory are for, told apart as in Kwon et al. 2023, section 3.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from llmserve_lab.kv_cache import MemoryMap


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Slots at one moment, or summed over several (slots x steps).

    used: hold a token. later: reserved and empty, a token comes later (reservation). never:
    reserved, and no token ever comes (internal fragmentation). largest_free_run, scattered: free,
    in the largest piece and outside of it (external fragmentation).
    """

    used: int
    later: int
    never: int
    largest_free_run: int
    scattered: int

    @property
    def reserved(self) -> int:
        return self.used + self.later + self.never

    @property
    def free(self) -> int:
        return self.largest_free_run + self.scattered

    @property
    def slots(self) -> int:
        return self.reserved + self.free

    @classmethod
    def sum(cls, uses: Iterable[SlotUse]) -> SlotUse:
        listed = list(uses)
        return cls(*(sum(getattr(use, field.name) for use in listed) for field in fields(cls)))


def slot_uses(maps: Sequence[MemoryMap]) -> list[SlotUse]:
    """For each step of a run that is over, such as `ReservingScheduler.maps`: only then is it known
    which reserved slots a token came to.

    Raises:
        ValueError: there are no steps.
    """
    if not maps:
        raise ValueError("There are no steps: serve something before you ask what its slots were.")
    final: dict[str, int] = {}
    for shot in maps:
        for region in shot.regions:
            if region.owner is not None:
                final[region.owner] = max(region.used, final.get(region.owner, 0))
    return [_of(shot, final) for shot in maps]


def _of(shot: MemoryMap, final: dict[str, int]) -> SlotUse:
    held = [region for region in shot.regions if region.owner is not None]
    later = sum(min(final[r.owner or ""], r.length) - r.used for r in held)
    largest = shot.largest_free_run
    return SlotUse(
        used=shot.num_used,
        later=later,
        never=shot.internal_waste - later,
        largest_free_run=largest,
        scattered=shot.num_free - largest,
    )
