"""Errors of the engine that a caller may want to tell apart."""


class SchedulerError(RuntimeError):
    """The scheduler broke a rule; the message names the request and the rule."""


class ProposerError(RuntimeError):
    """A proposer of drafts broke a rule; the message names the request and the rule."""
