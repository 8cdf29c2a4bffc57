"""An engine over real schedulers and pools whose model only counts: fast, exact, no tensors."""

from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.kv_cache import BlockPool

VOCABULARY = 5  # so small that prefixes often coincide
END = 0
LONGEST = 12  # tokens of a prompt, and of an output
UNUSABLE = 1000  # written by a step that broke off


class Rows(list):
    """Indexed by a list of rows, like a tensor."""

    def __getitem__(self, rows):
        return [super(Rows, self).__getitem__(row) for row in rows]


class BreakdownError(Exception):
    """The model stopped in the middle of a step."""


class Counter:
    """Stands for the model and its KV cache: the next token is a function of all tokens so far, as
    they lie in the blocks. Whoever loses or overwrites a block changes the text. As in attention,
    all of a step's tokens are written before any is read. breaks_after: a step of more tokens fails
    after so many, and what it wrote is of no use."""

    def __init__(self, num_blocks, block_size):
        self.blocks = [[None] * block_size for _ in range(num_blocks)]
        self.block_size = block_size
        self.breaks_after = None

    def run(self, batch):
        places = [
            (item.request.block_table, position, token)
            for item in batch
            for position, token in enumerate(item.token_ids(), item.start)
        ]
        breaks = self.breaks_after is not None and self.breaks_after < len(places)
        for table, position, token in places[: self.breaks_after if breaks else None]:
            block = table[position // self.block_size]
            self.blocks[block][position % self.block_size] = UNUSABLE if breaks else token
        if breaks:
            raise BreakdownError
        return Rows(
            self._stored(item)[: item.start + item.num_tokens - later]
            for item in batch
            for later in reversed(range(item.num_rows))
        )

    def _stored(self, item):
        return [token for block in item.request.block_table for token in self.blocks[block]]

    def sample(self, logits, requests):
        assert len(logits) == len(requests)
        return [next_token(t, r.params.seed) for t, r in zip(logits, requests, strict=True)]

    def forget(self, request):
        pass

    def read_blocks(self, blocks):
        return [list(self.blocks[block]) for block in blocks]

    def write_blocks(self, blocks, content):
        for block, tokens in zip(blocks, content, strict=True):
            self.blocks[block] = list(tokens)

    def copy_blocks(self, copies):
        for source, destination in copies:
            self.blocks[destination] = list(self.blocks[source])

    eos_token_ids = frozenset([END])


class Letters:
    def decode(self, ids, skip_special_tokens):
        return "".join(chr(ord("a") + token) for token in ids)


def next_token(tokens, seed=None):
    return (7 * sum(tokens) + 3 * len(tokens) + (seed or 0)) % VOCABULARY


def expected_output(prompt, max_tokens, longest, seed=None):
    tokens = list(prompt)
    while len(tokens) < min(len(prompt) + max_tokens, longest):
        tokens.append(next_token(tokens, seed))
        if tokens[-1] == END:
            break
    return tokens[len(prompt) :]


class FakeClock:
    """Stands still until somebody waits. It is the engine's doorbell as well."""

    def __init__(self):
        self.now, self.waits = 0.0, []

    def __call__(self):
        return self.now

    def ring(self):
        pass

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def build(num_blocks, block_size, limits, prefix_caching=False, scheduler=None, speculate=None):
    """An engine without tensors, over a clock that only waiting moves. speculate: makes its
    speculation, from the scheduler."""
    pool, clock = BlockPool(num_blocks, block_size, prefix_caching), FakeClock()
    model = Counter(num_blocks, block_size)
    scheduler = scheduler or Scheduler()
    scheduler.bind(pool, limits, clock, model)
    longest = num_blocks * block_size
    speculation = speculate and speculate(scheduler)
    return Engine(
        model, scheduler, model, Letters(), longest, clock, doorbell=clock, speculation=speculation
    )
