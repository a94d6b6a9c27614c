"""Transformers that are drawn from a seed, each with a tokenizer of its own.

They know nothing until they are trained. They are built from the same transformers classes as any
other model, so whatever works on them works on a large one, a hundred times faster.
"""

from dataclasses import dataclass
from typing import Any

from rostra.engines.local.needs import need

PAD, BEGIN, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
WORDS = (
    *("solution", "evaluation", "comparison", "consensus", "reason", "agent", "system", "user"),
    *("assistant", "answer", "question", "right", "wrong", "because", "better", "worse", "than"),
    *("the", "and", "is", "of", "to", "in", "it", "that", "are", "not", "you", "all", "one", "by"),
    *("yes", "no", "ing", "ed", "er", "tion", "boxed", "debate", "round", "rank", "other", "what"),
)
"""Words that are one token, also with a capital or a space in front. All else is spelt in bytes."""

SPLIT = r" ?[A-Za-z]+|\d|[^A-Za-z\d]"
"""How `toy` cuts a text before it looks for words."""

SUMS_WORDS = (
    *("system", "user", "assistant", "solve", "judge", "vote", "none", "yes", "no", "YES", "NO"),
    *("Methodical", " Analyst", "Creative", " Problem", " Solver", "Devil", " Advocate"),
    *("Synthesizer", "First", " Principles", " Thinker", " yes", " no", "N/A", "\\boxed{", "> "),
    *(f"Agent {i}" for i in range(10)),
    *(str(number) for number in range(10, 100)),
    *(
        f"<{mark}{tag}>"
        for tag in ("solution", "evaluation", "comparison", "consensus", "consensus_reason")
        for mark in ("", "/")
    ),
)
"""What is one token to `toy-sums`. All else is spelt in bytes."""

SUMS_SPLIT = (
    r"Agent \d(?!\d)| (?=Agent \d)|</?[a-z_]+>|\\boxed\{|N/A|> | ?[A-Za-z]+|\d{1,2}|[^A-Za-z\d]"
)

PERIODS = (2, 5, 10, 20, 30, 40, 60, 80, 100, 200)
"""On how many numbers a circle of `toy-sums` closes."""

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a transformer."""

    width: int
    inner: int
    layers: int
    heads: int
    shared_heads: int
    """Heads of keys and values."""
    spread: float = 0.02
    """The standard deviation of a weight at first."""


SIZES = {"toy": Size(128, 448, 4, 4, 2), "toy-sums": Size(64, 192, 3, 4, 4, 0.1)}
"""`toy` can say anything, and has about a million weights. `toy-sums` has a sixth of them and a
token for every number below 100: it is made for the small world of sums."""


def toy_model(seed: int, name: str = "toy") -> tuple[Any, Any]:
    """The model and its tokenizer. The same seed gives the same weights."""
    torch = need("torch")
    transformers = need("transformers")
    tokenizer = toy_tokenizer() if name == "toy" else sums_tokenizer()
    size = SIZES[name]
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.shared_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids(BEGIN),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
        initializer_range=size.spread,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = transformers.LlamaForCausalLM(config)
    if name == "toy-sums":
        _arrange_numbers(module.get_input_embeddings().weight, tokenizer, size.spread)
        _look_for_the_same(module, size)
    return module, tokenizer


def _arrange_numbers(embeddings: Any, tokenizer: Any, spread: float) -> None:
    """Puts the numbers on circles, one for each period, so that a step of one is a turn. Sums are
    turns added up: they are learned in a minute, and hold for numbers that were never added."""
    torch = need("torch")
    numbers = torch.arange(100)
    turns = 2 * torch.pi * numbers[:, None] / torch.tensor(PERIODS)
    circles = torch.stack([turns.cos(), turns.sin()], -1).flatten(1)
    tokens = tokenizer.convert_tokens_to_ids([str(number) for number in numbers.tolist()])
    with torch.no_grad():
        embeddings[tokens, : circles.shape[1]] = circles * (8**0.5 * spread)


def _look_for_the_same(module: Any, size: Size) -> None:
    """One head of the first layer asks for what it offers, so that a token looks at its like: with
    that, whether two answers are the same is learned in a minute, and hardly at all without."""
    rows = size.width // size.heads
    attention = module.model.layers[0].self_attn
    with need("torch").no_grad():
        attention.k_proj.weight[:rows] = attention.q_proj.weight[:rows]


def toy_tokenizer() -> Any:
    """Byte-level, with whole tokens for the words of a debate."""
    vocabulary = _bytes()
    merges: list[tuple[str, str]] = []

    def merge(left: str, right: str) -> None:
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))

    for word in WORDS:
        for form in (word, word.capitalize()):
            for end in range(1, len(form)):
                merge(form[:end], form[end])
    for word in WORDS:
        merge("\u0120", word)
        merge("\u0120", word.capitalize())
    return _tokenizer(vocabulary, merges, SPLIT)


def sums_tokenizer() -> Any:
    """Byte-level, with one token for every number, tag and name of the world of sums."""
    vocabulary = _bytes()
    for word in SUMS_WORDS:
        vocabulary[word.replace(" ", "\u0120")] = len(vocabulary)
    return _tokenizer(vocabulary, [], SUMS_SPLIT)


def _bytes() -> dict[str, int]:
    alphabet = sorted(need("tokenizers").pre_tokenizers.ByteLevel.alphabet())
    return {token: index for index, token in enumerate([PAD, BEGIN, END, *alphabet])}


def _tokenizer(vocabulary: dict[str, int], merges: list[tuple[str, str]], split: str) -> Any:
    tokenizers = need("tokenizers")
    transformers = need("transformers")
    # A whole word is looked up before it is merged: an earlier merge must not break it.
    model = tokenizers.models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True)
    core = tokenizers.Tokenizer(model)
    cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(split), "isolated")
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([cut, level])
    core.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, bos_token=BEGIN, eos_token=END
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
