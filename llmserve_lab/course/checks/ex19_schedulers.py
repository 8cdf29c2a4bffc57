"""Schedulers that are wrong answers to exercise 19.4, each by the mistake it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled

Step = tuple[list[Scheduled], int]  # a batch, and the tokens that are left


class _Right(OwnScheduler):
    """A right plan in parts; each mistake changes one of them."""

    def plan(self) -> list[Scheduled]:
        return self.let_in(*self.go_on([], self.limits.max_num_batched_tokens))[0]

    def go_on(self, batch: list[Scheduled], left: int) -> Step:
        for request in list(self.running):
            count = self.share(request, left)
            while request in self.running and not self.grow(request, count):
                self.send_back(self.running[-1])
            if request in self.running and count > 0:
                batch.append(self.part(request, count))
                left -= count
        return batch, left

    def let_in(self, batch: list[Scheduled], left: int) -> Step:
        while self.waiting and left > 0 and self.has_place():
            request = self.next_one()
            if not self.admits(request):
                break
            self.start(request)
            count = self.share(request, left)
            batch.append(self.part(request, count))
            left -= count
        return batch, left

    def share(self, request: Request, left: int) -> int:
        return min(request.num_uncomputed_tokens, left)

    def has_place(self) -> bool:
        return len(self.running) < self.limits.max_num_seqs

    def next_one(self) -> Request:
        return self.waiting[0]

    def admits(self, request: Request) -> bool:
        return not self.preempted and self.grow(request, request.num_uncomputed_tokens)


class StarvesLongPrompts(_Right):
    def next_one(self) -> Request:
        return min(self.waiting, key=lambda request: request.num_prompt_tokens)


class LastInFirstOut(_Right):
    def next_one(self) -> Request:
        return self.waiting[-1]


class IgnoresTheBudget(_Right):
    def share(self, request: Request, left: int) -> int:
        return request.num_uncomputed_tokens


class ForgetsToTakeFromTheBudget(_Right):
    def go_on(self, batch: list[Scheduled], left: int) -> Step:
        return super().go_on(batch, left)[0], left


class IgnoresThePlaces(_Right):
    def has_place(self) -> bool:
        return True


class AdmitsWithoutBlocks(_Right):
    def admits(self, request: Request) -> bool:
        return not self.preempted


class IgnoresMissingBlocks(_Right):
    def admits(self, request: Request) -> bool:
        self.grow(request, request.num_uncomputed_tokens)
        return True


class ForgetsThoseWhoRun(_Right):
    """Prompts have a step of their own: the others stand still."""

    def plan(self) -> list[Scheduled]:
        left = self.limits.max_num_batched_tokens
        return self.let_in([], left)[0] or self.go_on([], left)[0]


class WaitsInsteadOfSendingBack(_Right):
    def go_on(self, batch: list[Scheduled], left: int) -> Step:
        for request in list(self.running):
            count = self.share(request, left)
            if count > 0 and self.grow(request, count):
                batch.append(self.part(request, count))
                left -= count
        return batch, left


class StaticInDisguise(_Right):
    def let_in(self, batch: list[Scheduled], left: int) -> Step:
        return (batch, left) if batch else super().let_in(batch, left)


class NeverCutsAPrompt(_Right):
    def let_in(self, batch: list[Scheduled], left: int) -> Step:
        fits = self.waiting and self.waiting[0].num_uncomputed_tokens <= left
        return super().let_in(batch, left) if fits else (batch, left)


class TokenByToken(_Right):
    """Prompts too are run one token in a step."""

    def share(self, request: Request, left: int) -> int:
        return min(1, left)


class SendsEverybodyBack(_Right):
    def plan(self) -> list[Scheduled]:
        while self.running:
            self.send_back(self.running[-1])
        self.preempted = []
        return super().plan()


class ReadsPromptsWhole(_Right):
    """A prompt that was cut starts again from its first token, and is cut again."""

    def plan(self) -> list[Scheduled]:
        for request in list(self.running):
            if request.num_computed_tokens < request.num_prompt_tokens:
                self.send_back(request)
        return super().plan()


class TakesRoomFromThoseWhoRun(_Right):
    """The newcomer gets its blocks, whoever holds them; so two of them take turns."""

    def admits(self, request: Request) -> bool:
        while not self.grow(request, request.num_uncomputed_tokens):
            self.send_back(self.running[-1])
        return True


class SkipsThePrompt(_Right):
    """Only the last tokens of a prompt are run: the answer is another."""

    def admits(self, request: Request) -> bool:
        admitted = super().admits(request)
        if admitted and not request.num_output_tokens:
            request.num_computed_tokens = max(0, request.num_prompt_tokens - 2)
        return admitted


class ShortensTheAnswer(_Right):
    """Whoever comes back is asked for less."""

    def admits(self, request: Request) -> bool:
        del request.token_ids[request.num_prompt_tokens :]
        return super().admits(request)


class EndlessLoop(_Right):
    def let_in(self, batch: list[Scheduled], left: int) -> Step:
        while self.waiting and self.has_place():
            request = self.waiting[0]
            if self.grow(request, request.num_uncomputed_tokens) and left > 0:
                return super().let_in(batch, left)
        return batch, left


class PlansNobody(OwnScheduler):
    def plan(self) -> list[Scheduled]:
        return []


class PlansRequests(_Right):
    """Returns the requests, not their parts."""

    def plan(self) -> Any:
        return [item.request for item in super().plan()]


SCHEDULER: dict[str, Callable[..., Any]] = {
    "starves long prompts": StarvesLongPrompts,
    "last in, first out": LastInFirstOut,
    "ignores the token budget": IgnoresTheBudget,
    "does not take from the budget": ForgetsToTakeFromTheBudget,
    "ignores the places": IgnoresThePlaces,
    "admits without blocks": AdmitsWithoutBlocks,
    "goes on although blocks are missing": IgnoresMissingBlocks,
    "forgets those who run when it admits": ForgetsThoseWhoRun,
    "stands still without blocks": WaitsInsteadOfSendingBack,
    "static in disguise": StaticInDisguise,
    "never cuts a prompt": NeverCutsAPrompt,
    "reads prompts token by token": TokenByToken,
    "sends everybody back": SendsEverybodyBack,
    "starts cut prompts again": ReadsPromptsWhole,
    "takes room from those who run": TakesRoomFromThoseWhoRun,
    "leaves out part of the prompt": SkipsThePrompt,
    "loses what was answered": ShortensTheAnswer,
    "never leaves its loop": EndlessLoop,
    "plans nobody": PlansNobody,
    "returns requests": PlansRequests,
}
